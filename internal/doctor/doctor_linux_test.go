package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// examined is the report on this process.
func examined(t *testing.T) *Report {
	t.Helper()
	pipequota.Spend(t)
	r := Examine(Options{})
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	return r
}

// of returns the check of that name.
func (r *Report) of(t *testing.T, name string) Check {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %s", name)
	}
	return r.Checks[i]
}

func (r *Report) want(t *testing.T, name string, state State, mend string) {
	t.Helper()
	c := r.of(t, name)
	if all := strings.Join(c.Mend, "\n"); c.State != state || !strings.Contains(all, mend) {
		t.Errorf("%s is %s, mended by %q; want %s and %q", name, c.State, all, state, mend)
	}
}

// TestHere: the kernels that Penstock is tested on have these, for everybody.
func TestHere(t *testing.T) {
	r := examined(t)
	if !r.Able {
		t.Error("not able")
	}
	for _, name := range []string{"loopback", "splice", "rcvlowat", "user-timeout", "reuseport"} {
		r.want(t, name, OK, "")
	}
	if f := r.of(t, "splice").Figures.(splice); f.Moved != spliceBytes {
		t.Errorf("%d bytes spliced, want %d", f.Moved, spliceBytes)
	}
	f := r.of(t, "backlog").Figures.(backlog)
	if !f.Penstock.known || f.Somaxconn.known && f.Largest.value != min(askedBacklog, f.Somaxconn.value) {
		t.Errorf("backlog %v, at most %v; somaxconn %v", f.Penstock, f.Largest, f.Somaxconn)
	}
}

// TestLeavesNothing: limits are as they were. TestMain sees to the descriptors.
func TestLeavesNothing(t *testing.T) {
	soft, hard, err := sys.RlimitNoFileRange()
	if err != nil {
		t.Fatal(err)
	}
	examined(t)
	if s, h, err := sys.RlimitNoFileRange(); s != soft || h != hard || err != nil {
		t.Errorf("limits %d and %d, %v; were %d and %d", s, h, err, soft, hard)
	}
}

// TestRaisesAndRestores: a soft limit below the hard one is raised to find out that
// it can be, and is as before afterwards.
func TestRaisesAndRestores(t *testing.T) {
	if !privilege.Refused(t, syscall.ENOSYS, sys.SYS_IO_URING_SETUP) { // for a process of its own
		return
	}
	_, hard, err := sys.RlimitNoFileRange()
	if err == nil {
		err = sys.SetRlimitNoFile(200, hard)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := lookDescriptors(newPatient(Options{}, host{os.DirFS("/")})).(descriptors)
	if f.Soft.value != int64(hard) || f.Sessions != int(hard/2) {
		t.Errorf("%v descriptors for %d sessions, want %d", f.Soft, f.Sessions, hard)
	}
	if soft, _, err := sys.RlimitNoFileRange(); soft != 200 || err != nil {
		t.Errorf("left at %d, %v", soft, err)
	}
}

func TestOrdinaryUser(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	r := examined(t)
	if !r.Able {
		t.Error("not able")
	}
	r.want(t, "splice", OK, "")
	r.want(t, "bpf", Unused, "")
	r.want(t, "capabilities", Degraded, "")
	f := r.of(t, "pipe-quota").Figures.(pipeQuota)
	if f.Soft == known(16384) && f.PageSize == 4096 && (f.Whole != 64 || f.End != endDegraded || f.Degraded != 8192) {
		t.Errorf("%d whole pipes, then %s, %d bytes; want 64, then one of 8,192", f.Whole, f.End, f.Degraded)
	}
}

func TestSandbox(t *testing.T) {
	for _, c := range []struct {
		name   string
		errno  syscall.Errno
		number uintptr
		check  string
		state  State
		call   string
	}{
		{"splice forbidden", syscall.EPERM, sys.SYS_SPLICE, "splice", Missing, "splice"},
		{"splice unknown", syscall.ENOSYS, sys.SYS_SPLICE, "splice", Missing, "splice"},
		{"io_uring forbidden", syscall.EPERM, sys.SYS_IO_URING_SETUP, "io_uring", Unused, "io_uring_setup"},
		{"membarrier forbidden", syscall.EPERM, sys.SYS_MEMBARRIER, "membarrier", Degraded, "membarrier"},
		{"pipes forbidden", syscall.EPERM, sys.SYS_PIPE2, "splice", Missing, "pipe2"},
		{"bpf forbidden", syscall.EPERM, sys.SYS_BPF, "bpf", Unused, "bpf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !privilege.Refused(t, c.errno, c.number) {
				return
			}
			if c.call == "membarrier" && !onAMD64 {
				t.Skip("the pool does without it on this architecture")
			}
			r := examined(t)
			if !r.Able {
				t.Error("not able")
			}
			if c.check == "io_uring" {
				if d := r.of(t, "io_uring").Figures.(ioUring).Disabled; d.value > 0 {
					t.Skipf("kernel.io_uring_disabled is %v", d)
				}
			}
			if c.check == "bpf" && !r.of(t, "bpf").Figures.(bpf).CapBPF {
				t.Skip("refused for want of CAP_BPF already")
			}
			f := r.of(t, "seccomp").Figures.(seccomp)
			refused, verdict, allow := f.Refused, Degraded, "allows "+c.call+","
			if c.state == Unused {
				refused, verdict, allow = f.Unused, OK, ""
			}
			r.want(t, c.check, c.state, allow)
			r.want(t, "seccomp", verdict, "")
			if f.Mode != known(2) || !slices.Contains(refused, c.call) {
				t.Errorf("mode %v, refused %v; want a filter and %s", f.Mode, refused, c.call)
			}
		})
	}
}

// TestSandboxOfPipeSizes: fcntl of any kind is refused.
func TestSandboxOfPipeSizes(t *testing.T) {
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_FCNTL) {
		return
	}
	p := newPatient(Options{}, host{os.DirFS("/")})
	if got := lookPipeSize(p).judge(); got.state != Degraded && got.state != Unknown {
		t.Errorf("pipe-size is %s: %s", got.state, got.found)
	}
	if got := lookPipeQuota(p).judge(); got.state != Unknown {
		t.Errorf("pipe-quota is %s: %s", got.state, got.found)
	}
}

// TestNoSockets: without sockets Penstock cannot run, and nothing else is said of
// what needs them than that it is not known.
func TestNoSockets(t *testing.T) {
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_SOCKET) {
		return
	}
	r := examined(t)
	if r.Able {
		t.Error("able")
	}
	r.want(t, "loopback", Missing, "socket")
	for _, name := range needSockets {
		r.want(t, name, Unknown, "")
	}
	if f := r.of(t, "ports").Figures.(ports); f.LatePort.known {
		t.Errorf("bind_address_no_port: %v, although nothing could be tried", f.LatePort.yes)
	}
}

// needSockets are the checks that make connections to try something else.
var needSockets = []string{"splice", "backlog", "rcvlowat", "user-timeout", "reuseport", "zerocopy"}

// TestScaffolding: a call that the probes need around what they try is refused. It is
// named once, nothing else is blamed, and Penstock cannot run only if it listens with
// that call.
func TestScaffolding(t *testing.T) {
	for _, c := range []struct {
		call   string
		number uintptr
		able   bool
		state  State
	}{
		{"accept4", sys.SYS_ACCEPT4, false, Missing},
		{"listen", sys.SYS_LISTEN, false, Missing},
		{"setsockopt", sys.SYS_SETSOCKOPT, false, Missing},
		{"connect", sys.SYS_CONNECT, true, Degraded},
	} {
		t.Run(c.call, func(t *testing.T) {
			if !privilege.Refused(t, syscall.EPERM, c.number) {
				return
			}
			r := examined(t)
			if r.Able != c.able {
				t.Errorf("able: %v, want %v", r.Able, c.able)
			}
			r.want(t, "loopback", c.state, "allows "+c.call+",")
			for _, name := range []string{"splice", "rcvlowat", "zerocopy"} {
				r.want(t, name, Unknown, "")
			}
			if got := r.of(t, "seccomp").Figures.(seccomp).Refused; !slices.Equal(got, []string{c.call}) {
				t.Errorf("refused %v, want %s alone", got, c.call)
			}
		})
	}
}

// TestFewDescriptors: with 64 there is room for some sessions, with 8, of which a
// test has five, there is for none.
func TestFewDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		limit uint64
		able  bool
		state State
	}{"64": {64, true, Degraded}, "8": {8, false, Missing}} {
		t.Run(name, func(t *testing.T) {
			if !privilege.Refused(t, syscall.ENOSYS, sys.SYS_IO_URING_SETUP) { // for a process of its own
				return
			}
			if err := sys.SetRlimitNoFile(c.limit, c.limit); err != nil {
				t.Fatal(err)
			}
			if r := examine(Options{}, hostOf(map[string]string{})); r.Able != c.able {
				t.Errorf("able: %v, want %v", r.Able, c.able)
			} else {
				r.want(t, "descriptors", c.state, "nofile")
			}
		})
	}
}

// TestNoFiles: where the kernel's files cannot be read things are unknown, or found
// out without them.
func TestNoFiles(t *testing.T) {
	r := examine(Options{}, host{fstest.MapFS{}})
	if !r.Able {
		t.Error("not able")
	}
	for _, name := range []string{"syn-backlog", "ports", "tcp-buffers", "memory", "numa", "seccomp"} {
		r.want(t, name, Unknown, "")
	}
	for _, name := range []string{"loopback", "splice", "backlog", "clock", "rcvlowat"} {
		if s := r.of(t, name).State; s == Unknown {
			t.Errorf("%s is unknown", name)
		}
	}
}

// TestLinesFit: no line is wider than the report, unless it is one word.
func TestLinesFit(t *testing.T) {
	var text bytes.Buffer
	if err := examined(t).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		path := strings.Contains(line, "/") // of this program: it may be longer than a line
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width && !path {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestNamesAreDocumented: doc.go names every check, in the order of the report, and
// every figure. Others read the JSON by these names.
func TestNamesAreDocumented(t *testing.T) {
	names, figures := documented(t)
	r := examined(t)
	for i, c := range r.Checks {
		if i >= len(names) || names[i] != c.Name {
			t.Fatalf("check number %d is %s, doc.go has %v", i, c.Name, names)
		}
		for _, name := range figureNames(reflect.TypeOf(c.Figures)) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(figures[c.Name]) {
				t.Errorf("doc.go does not name the figure %s of %s", name, c.Name)
			}
		}
		if b, err := json.Marshal(c.Figures); err != nil || !bytes.HasPrefix(b, []byte("{")) {
			t.Errorf("figures of %s: %s, %v", c.Name, b, err)
		}
	}
	if len(names) > len(r.Checks) {
		t.Errorf("doc.go has %v, which are not checked", names[len(r.Checks):])
	}
}

// documented returns the checks that doc.go names, and what it says of each.
func documented(t *testing.T) (names []string, figures map[string]string) {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "They are, by check:")
	figures = map[string]string{}
	var current []string
	for line := range strings.Lines(table) {
		text, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		if text[0] != ' ' { // a row begins with the names, set off by two spaces
			head, rest, _ := strings.Cut(strings.TrimSpace(text), "  ")
			current, text = strings.Split(head, ", "), rest
			names = append(names, current...)
		}
		for _, name := range current {
			figures[name] += text + " "
		}
	}
	return names, figures
}

// figureNames are the names in JSON of a struct's fields.
func figureNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// TestExaminingTwiceFindsTheSame: one examination does not spend what the next one
// looks for.
func TestExaminingTwiceFindsTheSame(t *testing.T) {
	a, b := examined(t), examined(t)
	for i := range a.Checks {
		x, y := a.Checks[i], b.Checks[i]
		if x.Name != y.Name {
			t.Errorf("%s, then %s", x.Name, y.Name)
		}
		if x.Name == "loopback" || x.Name == "splice" || x.Name == "descriptors" {
			if x.State != y.State || x.Found != y.Found {
				t.Errorf("%s: %s %s, then %s %s", x.Name, x.State, x.Found, y.State, y.Found)
			}
		}
	}
}
