package vecio_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// hot are the functions of the byte path. None of them may move anything to the heap. The
// only thing that leaks is a piece that goes into the queue.
var hot = map[string]map[string][]string{
	"vecio": {
		"writer.go":           {"Append", "AppendString", "Own", "append", "add", "state", "admit", "wrote", "pop", "release", "drain", "Flush", "Pending", "abandon"},
		"queue.go":            {"refer", "copy", "extend", "turn", "crowded", "ample", "shut", "cut", "recycle"},
		"lengths.go":          {"add", "reached", "forget"},
		"short.go":            {"alike", "short", "noteLike", "offer", "sync", "long"},
		"vector_linux.go":     {"fill", "giveBack", "view"},
		"descriptor_linux.go": {"push", "once", "next", "send", "sendCopy", "drain", "step"},
		"policy_pace.go":      {"End", "paced", "settle"},
		"release.go":          {"Release"},
	},
	"internal/sys": {"message_linux.go": {"Sendmsg", "WritevVector"}, "socket_linux.go": {"Send"}, "file_linux.go": {"Write"}},
}

// TestEscapes reads the compiler's report: the message header stays on the stack, views
// are made in place, and no hot function allocates.
func TestEscapes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles two packages")
	}
	out, err := exec.Command("go", "build", "-gcflags=-m", module+"vecio", module+"internal/sys").CombinedOutput()
	if err != nil {
		t.Fatalf("go build -gcflags=-m: %v\n%s", err, out)
	}
	report := string(out)
	for pkg, files := range hot {
		lines := functionLines(t, pkg)
		for file, functions := range files {
			for _, name := range functions {
				checkEscapes(t, pkg, file, name, report, lines)
			}
		}
	}
	// And it reports the array itself once, so one report is expected.
	if n := len(regexp.MustCompile(`(?m)message_linux.go:\d+:\d+: pieces does not escape$`).FindAllString(report, -1)); n < 2 {
		t.Errorf("the compiler reports %d times that the pieces of a call do not escape", n)
	}
}

const module = "github.com/penstock/penstock/"

var moved = regexp.MustCompile(`(?m)^(\S+):(\d+):\d+: (.*(?:escapes to heap|moved to heap).*)$`)

func checkEscapes(t *testing.T, pkg, file, name, report string, lines map[string][][2]int) {
	t.Helper()
	ranges := lines[file+" "+name]
	if len(ranges) == 0 {
		t.Errorf("%s/%s has no function %s any more", pkg, file, name)
	}
	for _, m := range moved.FindAllStringSubmatch(report, -1) {
		var line int
		if _, err := fmt.Sscan(m[2], &line); err != nil {
			t.Fatal(err)
		}
		for _, r := range ranges {
			if strings.HasSuffix(m[1], "/"+file) && line >= r[0] && line <= r[1] && !allowed(m[3]) {
				t.Errorf("%s: %s", name, m[0])
			}
		}
	}
}

// allowed reports whether a line is about an empty pool or a failure, not about each
// piece.
func allowed(what string) bool {
	for _, ok := range []string{
		"append escapes to heap",                // a queue's array grows, and is pooled
		"&buffer{...} escapes to heap",          // there is no buffer in the pool
		"make([]byte, sizes[size]) escapes",     //
		"make([]unix.Iovec, 0, n) escapes",      // more than IOV_MAX, for the kernel to refuse
		"e escapes to heap",                     // an errno: the runtime keeps them boxed
		"&os.SyscallError{...} escapes to heap", // a failure
	} {
		if strings.HasPrefix(what, ok) {
			return true
		}
	}
	return false
}
