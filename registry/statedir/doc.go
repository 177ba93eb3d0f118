// Package statedir keeps a state on disk, so that there is one after a restart before anybody
// can be asked for the truth. What the state is does not matter here.
//
//	DIR/state     the last state: header, then content
//	DIR/state.bad the last file of that name that could not be used
//	DIR/lock      is locked by the process that writes
//
// A file takes its name when all of it is on the disk ([Dir.Write]): whatever ends the
// process, or the machine, there is the state before or the one after. What is read is
// believed only if it is what was written, of the same form, about the same things, and not
// too old ([Dir.Read]). A file that is not is set aside, to be looked at by people;
// one that is only too old stays.
//
// Any number of processes may read; one of them writes, the first that asked. Nothing is
// written outside of DIR, and only what is above, but for a temporary file that an
// interrupted write leaves, which the next one removes.
package statedir
