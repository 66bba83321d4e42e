//! Tests of the Router.
