//! The program against real etcd and a real S3 server.

mod archive;
mod azure;
mod cluster;
mod damage;
mod faults;
mod ledger;
mod memory;
mod program;
mod relay;
mod replay;
mod restore;
mod retention;
mod sources;
mod stores;
