// Package pipequota keeps tests that need pipes apart from those that take all that there are.
// The pipes that an ordinary user may have (pipe-user-pages-soft, pipe(7)) are shared by all
// of the user's processes, the tests of other packages among them. Beyond that the kernel
// makes pipes of two pages, and does not enlarge any, so that Penstock copies.
//
// A test that fails without pipes calls [Share]; one that takes more than a small part of
// the quota calls [Spend]. Neither does anything where no quota binds the process.
package pipequota
