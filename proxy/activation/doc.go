// Package activation is what a service and systemd have to say to each other:
// listening sockets that are passed to the process (sd_listen_fds(3)), and what
// the process tells of itself (sd_notify(3)).
//
// Both read the environment of the process once and remove what they have read,
// so that children do not take it for theirs.
package activation
