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

// A Site names a place: 0 names none. Sites of the same calls are equal. Being a number, a site
// costs its owner four bytes, and nothing to the collector.
type Site uint32

// depth is how many calls are remembered: enough to reach the program from within the library.
const depth = 16

// calls are return addresses, and zeros.
type calls [depth + 1]uintptr

// known are all sites so far: as many as there are places with a call, which a program's text bounds
// as long as recursion is not part of them.
var known struct {
	sync.RWMutex
	sites map[calls]Site
	calls []calls // of the site of that number, less 1
}

// Here returns the site of the call of the function that calls it. It allocates nothing for a site
// that it has returned before. Safe for concurrent use.
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

// String returns the first place outside of the package that asked, as file:line and function. If
// that is in the library too, the callers follow, up to the first that is not.
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

// inLibrary holds for the packages that programs import.
func inLibrary(path string) bool {
	name, ok := strings.CutPrefix(path, "github.com/penstock/penstock/")
	return ok && !strings.Contains(name, "/")
}

// packageOf returns the path of the package of a frame, and for a file of tests a path that is not
// in the library: the tests of a package are programs that use it.
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

// bracket is where the type arguments of a function begin, which have slashes of their own.
func bracket(name string) int {
	if i := strings.IndexByte(name, '['); i >= 0 {
		return i
	}
	return len(name)
}
