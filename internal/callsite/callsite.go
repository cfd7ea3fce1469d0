// Package callsite remembers the places in a program from which the library was called, for the
// checks of the build tag invariants. Other builds do not import it.
package callsite

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// A Site names a place in the program; 0 names none. Sites of the same calls are equal. A Site is a number, so
// it takes four bytes and no work of the collector.
type Site uint32

// depth is how many calls are remembered: enough to get from within the library to the program.
const depth = 16

// calls are return addresses, and zeros.
type calls [depth + 1]uintptr

// known has all sites so far. There are as many as places with a call, so the program's text bounds them,
// except for recursion.
var known struct {
	sync.RWMutex
	sites map[calls]Site
	calls []calls // of site i+1
}

// Here returns the site where the function that calls Here was called. It allocates nothing for a site that it
// has returned before. It is safe for concurrent use.
func Here() Site {
	var c calls
	runtime.Callers(2, c[:depth])
	known.RLock()
	s := known.sites[c]
	known.RUnlock()
	if s != 0 {
		return s
	}
	known.Lock()
	defer known.Unlock()
	if known.sites == nil {
		known.sites = make(map[calls]Site)
	}
	if known.sites[c] == 0 {
		known.calls = append(known.calls, c)
		known.sites[c] = Site(len(known.calls))
	}
	return known.sites[c]
}

// String returns the first place outside of the package that called Here, as file:line and function. If that
// place is in the library too, its callers follow, up to the first one outside of the library.
func (s Site) String() string {
	if s == 0 {
		return unknown
	}
	known.RLock()
	c := known.calls[s-1]
	known.RUnlock()
	frames := runtime.CallersFrames(c[:slices.Index(c[:], 0)])
	asked := ""
	var places []string
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		p := packageOf(f)
		if asked == "" {
			asked = p
		}
		if p != asked {
			places = append(places, fmt.Sprintf("%s:%d (%s)", f.File, f.Line, f.Function))
			more = more && inLibrary(p)
		}
	}
	if len(places) == 0 {
		return unknown
	}
	return strings.Join(places, ", called at ")
}

const unknown = "an unknown place"

// inLibrary reports whether a path is a package that programs import.
func inLibrary(path string) bool {
	name, ok := strings.CutPrefix(path, "github.com/penstock/penstock/")
	return ok && !strings.Contains(name, "/")
}

// packageOf returns the path of a frame's package. For a test file it returns a path outside of the library:
// the tests of a package are programs that use it.
func packageOf(f runtime.Frame) string {
	if strings.HasSuffix(f.File, "_test.go") {
		return f.File
	}
	slash := strings.LastIndexByte(f.Function[:min(len(f.Function), bracket(f.Function))], '/')
	dot := strings.IndexByte(f.Function[slash+1:], '.')
	if dot < 0 {
		return f.Function
	}
	return f.Function[:slash+1+dot]
}

// bracket returns where the type arguments of a function begin, which contain slashes.
func bracket(name string) int {
	if i := strings.IndexByte(name, '['); i >= 0 {
		return i
	}
	return len(name)
}
