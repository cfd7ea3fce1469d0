// Package verdict turns the waits of a session and the kernel's accounts of its two connections into shares of the
// session's time, and into one verdict: what limits this session.
//
// It only computes: it makes no system call and never waits. docs/seeing.md says how often the verdict is right.
package verdict
