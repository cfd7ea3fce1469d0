// Package discovery finds the endpoints of an upstream and reports changes. They come from a
// list, from a file that other programs replace, or from DNS.
//
// A [Source] always returns the whole set. It forgets nothing because of a failure: as long as
// its file is unreadable or its name servers fail, it keeps the last good set. [Status]
// reports the failure.
package discovery
