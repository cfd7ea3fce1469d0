// Package discovery finds the endpoints of an upstream and tells when they change:
// from a list, from a file that others replace, or from DNS.
//
// A [Source] always tells the whole set. What it cannot find out it does not
// forget: as long as its file is unreadable or its name servers fail, the last
// good set stands, and [Status] says so.
package discovery
