//! Scenarios that other operators got wrong, by their numbers in the collection of such.
