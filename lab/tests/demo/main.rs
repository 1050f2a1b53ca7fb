//! The demo as people start it: as root, as an ordinary user, at a terminal, on a bare machine, and ended in every way there is.

mod bare;
mod documents;
mod endings;
mod person;
mod quick;
mod refused;
mod screen;
mod stage;
mod tour;
