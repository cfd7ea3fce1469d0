// Package balancer is a load balancer that serves what a configuration says, and changes
// to another one while it serves.
//
// A change is prepared beside what runs: sockets are bound, certificates read, tables
// built, and if anything fails nothing has changed. Then it is brought into force at once.
// A listening socket whose address stays keeps its queue, endpoints keep what is known of
// them, and a session keeps what it began under.
package balancer
