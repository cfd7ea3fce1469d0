// Package systemd is the protocol between a service and systemd: listening sockets that are
// passed to the process (sd_listen_fds(3)), and notifications of its state (sd_notify(3)).
//
// Both read the environment of the process once and remove those variables, so that children
// do not take them for theirs.
package systemd
