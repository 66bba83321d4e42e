//! Tests of the Table.
