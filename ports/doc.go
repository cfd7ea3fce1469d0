// Package ports has tests alone: they take public projects from the module proxy, put this library in
// place of their io.Copy and the like by the patches in testdata, and run the projects' own tests.
// README.md links to the patches.
package ports
