//! Conditions of a status, as kstatus reads them.
