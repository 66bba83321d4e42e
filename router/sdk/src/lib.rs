//! router/sdk:sdk
