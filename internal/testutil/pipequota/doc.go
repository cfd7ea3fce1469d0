// Package pipequota keeps tests that need pipes apart from tests that take all pipes there are. All processes
// of an ordinary user share one quota of pipes (pipe-user-pages-soft, pipe(7)), including the tests of other
// packages. Beyond that quota the kernel makes pipes of two pages, and enlarges none, so that Penstock copies.
//
// A test that fails without pipes calls [Share]; a test that takes more than a small part of the quota calls
// [Spend]. Neither does anything if no quota binds the process.
package pipequota
