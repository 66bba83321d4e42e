//! The configuration files of the roles.
