//! Puppet Server's own files, read and written as it reads and writes them.
//!
//! [`cadir`] is the directory of its authority. [`PuppetConf`] and [`CaConf`] are what the server takes from its settings,
//! [`ToolConf`] is what the command `puppetserver ca` takes from the same `puppet.conf`. Nothing here decides what is made of it.

pub mod cadir;

mod ca_conf;
mod hocon;
mod puppet_conf;
mod setting;
mod tool_conf;

pub use ca_conf::CaConf;
pub use puppet_conf::{Autosign, AutosignFault, PuppetConf};
pub use setting::{Ignored, KeyFault};
pub use tool_conf::{ServerPlace, ToolConf, ToolConfFault};
