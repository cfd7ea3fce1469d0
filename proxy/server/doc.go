// Package server is a load balancer that serves a configuration, and changes to another one
// while it serves.
//
// A change is prepared beside the present state: sockets are bound, certificates read, tables
// built, and if anything fails nothing has changed. Then it is brought into force at once. A
// listening socket whose address stays keeps its queue, endpoints keep their health and
// statistics, and a session keeps the configuration that it began with.
package server
