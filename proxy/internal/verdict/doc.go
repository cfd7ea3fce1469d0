// Package verdict turns the waits of a session and the kernel's accounts of its two connections into shares of the
// session's time, and one verdict on the limit of this session.
//
// It is pure: it asks nothing and waits for nothing. docs/seeing.md says how often it is right.
package verdict
