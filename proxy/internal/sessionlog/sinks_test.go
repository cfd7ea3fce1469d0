package sessionlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/sessionlog"
)

// rig is a log of two loops.
type rig struct {
	*sessionlog.Log
	added int64

	mu      sync.Mutex
	reports []string
	closed  bool // by the test
}

// newRig makes a log to a destination; change may change its settings.
func newRig(t *testing.T, to string, change func(*sessionlog.Settings)) *rig {
	t.Helper()
	r := &rig{}
	start := time.Now()
	r.Log = sessionlog.New(&sessionlog.Config{Loops: 2, Now: func() int64 { return int64(time.Since(start)) + 1 }, Report: func(n int64, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports = append(r.reports, fmt.Sprint(n, err))
	}})
	t.Cleanup(func() {
		if r.closed {
			return
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	r.Set(open(t, to, change))
	return r
}

func open(t *testing.T, to string, change func(*sessionlog.Settings)) *sessionlog.Settings {
	t.Helper()
	at, err := sessionlog.ParseDestination(to)
	must(t, err)
	s := &sessionlog.Settings{Destination: at, Format: sessionlog.FormatTemplate, Template: "{listener} {sni}", End: true, Share: 1}
	if change != nil {
		change(s)
	}
	must(t, s.Open())
	return s
}

// end adds the end of a session whose name is that text.
func (r *rig) end(name string) {
	rec := whole()
	rec.ServerName = name
	r.added++
	r.Add(int(r.added%3)-1, sessionlog.End, &rec)
}

// settled waits until every line that was added is written or dropped, and returns the counts.
func (r *rig) settled(t *testing.T) sessionlog.Counts {
	t.Helper()
	var c sessionlog.Counts
	condition.Await(t, "every line is written or dropped", func() bool {
		c = r.Counts()
		return c.Lines+c.Lost() == r.added
	})
	return c
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	if len(b) == 0 {
		return nil
	}
	if b[len(b)-1] != '\n' {
		t.Fatalf("%s ends in the middle of a line", path)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// TestFile: lines of all loops come into the file, and into another one after it was moved away, removed, or
// SIGUSR1 has come.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.log")
	r := newRig(t, path, nil)
	for i := range 5 {
		r.end(fmt.Sprint("a", i))
	}
	if c := r.settled(t); c.Lines != 5 || len(lines(t, path)) != 5 {
		t.Fatalf("%+v, %q", c, lines(t, path))
	}
	must(t, os.Rename(path, path+".1"))
	r.Reopen()
	condition.Await(t, "the file is opened again", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
	r.end("b")
	r.settled(t)
	if got := lines(t, path); len(got) != 1 || got[0] != "web b" || len(lines(t, path+".1")) != 5 {
		t.Errorf("after SIGUSR1: %q and %q", got, lines(t, path+".1"))
	}
	must(t, os.Remove(path))
	condition.Await(t, "the removed file is there again", func() bool {
		r.end("c")
		r.settled(t)
		_, err := os.Stat(path)
		return err == nil
	})
	if c := r.Counts(); c.Lost() != 0 || int64(5+1+len(lines(t, path))) != c.Lines {
		t.Errorf("%+v, and in the last file %q", c, lines(t, path))
	}
}

// TestFileThatCannotBeMadeAgain: after a rotation the path cannot be opened. Lines go to the file that was moved away as long
// as it has a name, and the failure stays. Then lines wait, and those without a place are counted.
func TestFileThatCannotBeMadeAgain(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "d")
	path, moved := filepath.Join(dir, "s.log"), filepath.Join(dir+".1", "s.log")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.MkdirAll(filepath.Join(dir+".2", "s.log"), 0o700))
	r := newRig(t, path, nil)
	must(t, os.Rename(dir, dir+".1")) // at no time can the log make its file again
	must(t, os.Rename(dir+".2", dir))
	r.Reopen()
	condition.Await(t, "the failure is reported", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.reports) > 0 && strings.Contains(r.reports[0], path)
	})
	r.end("a")
	if c := r.settled(t); c.Lines != 1 || len(lines(t, moved)) != 1 || r.Failed() == nil {
		t.Errorf("%+v, failure %v", c, r.Failed())
	}
	must(t, os.Remove(moved))
	condition.Await(t, "lines are dropped", func() bool {
		for range 200 {
			r.end(strings.Repeat("n", 80))
		}
		return r.Counts().Dropped > 0
	})
	if r.Failed() == nil {
		t.Error("it has not failed")
	}
	must(t, os.Remove(path))
	if c := r.settled(t); int64(1+len(lines(t, path))) != c.Lines {
		t.Errorf("%+v, and %d lines", c, len(lines(t, path)))
	}
	condition.Await(t, "nothing has failed", func() bool { return r.Failed() == nil })
}

// TestFileComesBack: while the file's directory has another name the path cannot be opened. When it has its name again, the
// failure is over.
func TestFileComesBack(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "s.log")
	must(t, os.Mkdir(dir, 0o700))
	r := newRig(t, path, nil)
	must(t, os.Rename(dir, dir+".1"))
	r.Reopen()
	condition.Await(t, "it has failed", func() bool { return r.Failed() != nil })
	must(t, os.Rename(dir+".1", dir))
	condition.Await(t, "nothing has failed", func() bool {
		r.end("a")
		return r.Failed() == nil
	})
	if c := r.settled(t); int64(len(lines(t, path))) != c.Lines {
		t.Errorf("%+v, and %d lines", c, len(lines(t, path)))
	}
}

// TestHalfALine: a file that ends in the middle of a line loses no line after it.
func TestHalfALine(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "s.log")
	must(t, os.WriteFile(path, []byte("web a\nweb h"), 0o600))
	for _, name := range []string{"b", "c"} { // the second process finds a whole line
		r := newRig(t, path, nil)
		r.end(name)
		r.settled(t)
	}
	if got, want := lines(t, path), []string{"web a", "web h", "web b", "web c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// disk returns the directory of a disk of that size. It is called in a namespace of mounts of the test's own.
func disk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestTruncatedOnAFullDisk: the rest of a line whose beginning was truncated away is dropped and counted.
func TestTruncatedOnAFullDisk(t *testing.T) {
	if !privilege.Mounts(t) {
		return
	}
	path := filepath.Join(disk(t, "64k"), "s.log")
	r := newRig(t, path, nil)
	name := strings.Repeat("n", 80)
	for range 760 { // 85 bytes each: almost as many as the disk has room for
		r.end(name)
	}
	r.settled(t)
	for range 20 { // few, so that the log does not write again at once, while the file is truncated
		r.end(name)
	}
	condition.Await(t, "the disk is full", func() bool { return r.Failed() != nil })
	before := read(t, path)
	must(t, os.Truncate(path, 0))
	c := r.settled(t)
	got := lines(t, path)
	if bytes.HasSuffix(before, []byte("\n")) || c.Dropped != 1 || int64(bytes.Count(before, []byte("\n"))+len(got)) != c.Lines {
		t.Errorf("%+v, %d lines, and %q before them", c, len(got), before[len(before)-10:])
	}
	for _, line := range got {
		if line != "web "+name {
			t.Fatalf("a line is %q", line)
		}
	}
}

// TestFullDisk: on a full disk lines are dropped and counted, none is torn, and they go on when there is room.
func TestFullDisk(t *testing.T) {
	if !privilege.Mounts(t) {
		return
	}
	dir := disk(t, "2m")
	ballast, path := filepath.Join(dir, "ballast"), filepath.Join(dir, "s.log")
	must(t, os.WriteFile(ballast, make([]byte, 1536<<10), 0o600))
	r := newRig(t, path, nil)
	for r.Counts().Dropped == 0 { // until more is pending than is kept
		for range 200 {
			r.end(strings.Repeat("n", 80))
		}
		time.Sleep(time.Millisecond)
	}
	must(t, os.Remove(ballast))
	condition.Await(t, "lines are written again", func() bool {
		r.end("again")
		return bytes.HasSuffix(read(t, path), []byte("again\n"))
	})
	c := r.settled(t)
	got := lines(t, path)
	if int64(len(got)) != c.Lines {
		t.Errorf("%d lines, %+v", len(got), c)
	}
	for _, line := range got {
		if line != "web again" && line != "web "+strings.Repeat("n", 80) {
			t.Fatalf("a line is %q", line)
		}
	}
	condition.Await(t, "the full disk is reported", func() bool { // at most ten seconds after a full queue was
		r.mu.Lock()
		defer r.mu.Unlock()
		_, after, reported := strings.Cut(strings.Join(r.reports, "\n"), "no space left")
		return reported && strings.Contains(after+"\n", "\n0 <nil>\n") // and that there is room again; losses of before may be reported later
	})
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// TestStuckFIFO: a FIFO whose reader reads nothing holds up nothing, and when it reads it finds whole lines.
func TestStuckFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(path, 0o600))
	r := newRig(t, path, nil) // there is no reader yet
	r.end("early")
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer reader.Close()
	for range 20_000 { // far more than there is room for: one that waited would do so for ever, for nobody reads yet
		r.end(strings.Repeat("n", 80))
	}
	condition.Await(t, "lines are dropped", func() bool { return r.Counts().Lost() > 0 })
	var got atomic.Int64
	var torn atomic.Pointer[string]
	go func() { // ends with the reader
		rest := ""
		for b := make([]byte, 1000); ; {
			n, err := reader.Read(b)
			if err != nil {
				return
			}
			for line := range strings.SplitAfterSeq(rest+string(b[:n]), "\n") {
				if rest = line; strings.HasSuffix(line, "\n") {
					if rest = ""; line != "web early\n" && line != "web "+strings.Repeat("n", 80)+"\n" {
						torn.Store(&line)
					}
					got.Add(1)
				}
			}
		}
	}()
	c := r.settled(t)
	condition.Await(t, "all lines are read", func() bool { return got.Load() == c.Lines })
	if line := torn.Load(); line != nil {
		t.Errorf("a line is %q", *line)
	}
}

// TestWaits: lines wait while a write hangs, or a FIFO has no room, until they are written.
func TestWaits(t *testing.T) {
	t.Parallel()

	waits := func(r *rig, want bool) {
		t.Helper()
		condition.Await(t, fmt.Sprintf("lines wait: %v", want), func() bool { return (r.Waits() != 0) == want })
	}
	r, until := newRig(t, filepath.Join(t.TempDir(), "none"), nil), make(chan struct{})
	next := open(t, filepath.Join(t.TempDir(), "s.log"), nil)
	next.Hang(until)
	r.Set(next)
	condition.Await(t, "a line waits", func() bool { // earlier lines may go to the destination before
		r.end("a")
		return r.Waits() != 0
	})
	close(until)
	r.settled(t)
	waits(r, false)

	path := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(path, 0o600))
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer reader.Close()
	r = newRig(t, path, nil)
	for range 1000 {
		r.end(strings.Repeat("n", 80))
	}
	condition.Await(t, "the FIFO is full", func() bool { return r.Counts().Lines > 500 })
	waits(r, true)
	go io.Copy(io.Discard, reader) // ends with the reader
	r.settled(t)
	waits(r, false)
}

// TestNextWhileHung: while a write hangs, the next destination gets the lines. Once the write returns, its lines count.
func TestNextWhileHung(t *testing.T) {
	t.Parallel()

	dir, until := t.TempDir(), make(chan struct{})
	before, after := filepath.Join(dir, "before"), filepath.Join(dir, "after")
	r := newRig(t, filepath.Join(dir, "none"), nil)
	hangs := open(t, before, nil)
	hangs.Hang(until)
	r.Set(hangs)
	condition.Await(t, "a line waits", func() bool {
		r.end("a")
		return r.Waits() != 0
	})
	for range 100 {
		r.end("b")
	}
	r.Set(open(t, after, nil))
	condition.Await(t, "the next file has lines", func() bool {
		r.end("c")
		b, _ := os.ReadFile(after) // the kernel shows a write page by page, so the last line may not be whole
		return strings.Count(string(b), "\n") > 100
	})
	condition.Await(t, "no line waits", func() bool { return r.Waits() == 0 })
	if len(lines(t, before)) > 0 {
		t.Error("a write that hangs has returned")
	}
	close(until)
	if c := r.settled(t); c.Lines != r.added || len(lines(t, before)) == 0 {
		t.Errorf("%+v of %d", c, r.added)
	}
}

// TestSyslogAddsTheHeader: a line of HAProxy has one header, by the syslog server if it goes there.
func TestSyslogAddsTheHeader(t *testing.T) {
	t.Parallel()

	at := filepath.Join(t.TempDir(), "log")
	c, err := net.ListenPacket("unixgram", at)
	must(t, err)
	defer c.Close()
	r := newRig(t, "syslog+unix:"+at, func(s *sessionlog.Settings) { s.Format = sessionlog.FormatHAProxy })
	r.end("a.example")
	b := make([]byte, 2000)
	n, _, err := c.ReadFrom(b)
	must(t, err)
	if !regexp.MustCompile(`^<134>1 \S+ \S+ penstock \d+ end - \S+:\d+ \[\d\d/[A-Z]`).Match(b[:n]) {
		t.Errorf("a message is %q", b[:n])
	}
}

// TestSyslog: datagrams of RFC 5424 to UDP and to a unix socket; a receiver that is not there, or has gone,
// loses lines that are counted as far as that can be known.
func TestSyslog(t *testing.T) {
	at := filepath.Join(t.TempDir(), "log")
	for _, network := range []string{"udp", "unix"} {
		t.Run(network, func(t *testing.T) {
			listen := func() (net.PacketConn, string) {
				if network == "udp" {
					c, err := net.ListenPacket("udp", "127.0.0.1:0")
					must(t, err)
					return c, "syslog+udp://" + c.LocalAddr().String()
				}
				c, err := net.ListenPacket("unixgram", at)
				must(t, err)
				return c, "syslog+unix:" + at
			}
			c, to := listen()
			r := newRig(t, to, nil)
			r.end("a.example")
			b := make([]byte, 2000)
			n, _, err := c.ReadFrom(b)
			must(t, err)
			words := strings.Fields(string(b[:n]))
			if len(words) != 9 || words[0] != "<134>1" || words[3] != "penstock" || words[4] != fmt.Sprint(os.Getpid()) || words[5] != "end" || words[8] != "a.example" {
				t.Errorf("a message is %q", b[:n])
			}
			if _, err := time.Parse(time.RFC3339Nano, words[1]); err != nil {
				t.Error(err)
			}
			c.Close()
			// The error of one comes with the next.
			condition.Await(t, "a line is dropped, for nothing listens", func() bool {
				r.end("lost")
				return r.settled(t).Dropped > 0
			})
		})
	}
	r := newRig(t, "syslog+unix:"+at+".none", nil)
	r.end("x")
	if got := r.settled(t); got.Dropped != 1 {
		t.Errorf("there is no socket: %+v", got)
	}
}

// TestPlantedSocket: no line goes to a socket that another user has put there.
func TestPlantedSocket(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	const nobody = 65534
	shared, theirs := t.TempDir(), t.TempDir()
	must(t, os.Chmod(shared, 0o777|os.ModeSticky))
	planted, own := filepath.Join(shared, "planted"), filepath.Join(theirs, "own")
	for _, path := range []string{planted, own} {
		c, err := net.ListenPacket("unixgram", path)
		must(t, err)
		defer c.Close()
	}
	link := filepath.Join(shared, "link")
	must(t, os.Symlink(own, link))
	must(t, os.Lchown(link, nobody, nobody))
	must(t, os.Chown(planted, nobody, nobody))
	must(t, os.Chown(theirs, nobody, nobody))
	for _, path := range []string{planted, own, link} {
		for _, kind := range []string{"syslog+unix:", "journald:"} {
			at, err := sessionlog.ParseDestination(kind + path)
			must(t, err)
			s := &sessionlog.Settings{Destination: at, Format: sessionlog.FormatJSON, End: true, Share: 1}
			if err := s.Open(); !errors.Is(err, file.ErrUnsafe) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s%s: %v", kind, path, err)
			}
		}
	}
}

// TestJournald: entries of the native protocol, with fields.
func TestJournald(t *testing.T) {
	at := filepath.Join(t.TempDir(), "journal")
	c, err := net.ListenPacket("unixgram", at)
	must(t, err)
	defer c.Close()
	r := newRig(t, "journald:"+at, nil)
	r.end("evil\nMESSAGE=forged")
	b := make([]byte, 4000)
	n, _, err := c.ReadFrom(b)
	must(t, err)
	entry := make(map[string]string)
	for line := range strings.Lines(string(b[:n])) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := entry[name]; !ok || twice || name != strings.ToUpper(name) {
			t.Errorf("a line is %q", line)
		}
		entry[name] = value
	}
	for name, want := range map[string]string{
		"PRIORITY": "6", "SYSLOG_IDENTIFIER": "penstock", "MESSAGE": `web evil\x0aMESSAGE=forged`, "PENSTOCK_SNI": `evil\x0aMESSAGE=forged`, "PENSTOCK_UPSTREAM": "shop", "PENSTOCK_RETRIES": "2",
	} {
		if entry[name] != want {
			t.Errorf("%s is %q, want %q", name, entry[name], want)
		}
	}
}

// TestOddFiles: a file that cannot be opened has the reason, and what to write instead.
func TestOddFiles(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	socket := filepath.Join(dir, "socket")
	c, err := net.ListenPacket("unixgram", socket)
	must(t, err)
	defer c.Close()
	for path, want := range map[string]string{dir: "is a directory", socket: "write syslog+unix:" + socket} {
		to, err := sessionlog.ParseDestination(path)
		must(t, err)
		s := &sessionlog.Settings{Destination: to, Format: sessionlog.FormatTemplate, Template: "{id}"}
		if err := s.Open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestFilters: sessions are left out as the settings say.
func TestFilters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.log")
	good := whole()
	good.Result.Reason = 1 // eof
	good.ServerName, good.Accepted = "good", 1
	for name, tt := range map[string]struct {
		change         func(*sessionlog.Settings)
		good, bad, off bool
	}{
		"all":      {nil, true, true, false},
		"failed":   {func(s *sessionlog.Settings) { s.OnlyFailed = true }, false, true, false},
		"slow":     {func(s *sessionlog.Settings) { s.SlowerThan = time.Hour }, false, true, false},
		"share":    {func(s *sessionlog.Settings) { s.Share = 0 }, false, false, false},
		"listener": {func(s *sessionlog.Settings) { s.Without = map[string]bool{"web": true} }, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(path)
			r := newRig(t, path, tt.change)
			bad := whole()
			bad.ServerName = "bad"
			r.Add(0, sessionlog.End, &good)
			r.Add(0, sessionlog.End, &bad)
			r.Add(0, sessionlog.Start, &good) // there are no such lines
			var want []string
			for name, is := range map[string]bool{"good": tt.good, "bad": tt.bad} {
				if is {
					want = append(want, name)
				}
			}
			r.added = int64(len(want))
			if c := r.settled(t); c.Filtered != int64(2-len(want)) && !tt.off {
				t.Errorf("%+v", c)
			}
			if got := strings.Join(lines(t, path), " "); strings.Contains(got, "good") != tt.good || strings.Contains(got, "bad") != tt.bad {
				t.Errorf("lines %q", got)
			}
		})
	}
	r := newRig(t, path, func(s *sessionlog.Settings) { s.PerSecond = 5 })
	for range 100 {
		r.end("x")
	}
	if c := r.settled(t); c.Rated == 0 || c.Lines < 5 || c.Lines > 50 {
		t.Errorf("of 100 with 5 a second: %+v", c)
	}
}

// TestShare: a share of the sessions has lines, and all lines of one session are in it or none.
func TestShare(t *testing.T) {
	r := newRig(t, filepath.Join(t.TempDir(), "s.log"), func(s *sessionlog.Settings) { s.Share = 0.1 })
	ids, in := record.NewIDs(), 0
	for n := range uint64(10_000) {
		if r.Records("web", ids.Of(n)) {
			in++
		}
	}
	if in < 800 || in > 1200 {
		t.Errorf("%d of 10,000 are in a tenth", in)
	}
}

// TestSettingsChange: lines that were added before a change are written by the settings before; after the
// end of the log nothing is.
func TestSettingsChange(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	r := newRig(t, a, nil)
	for range 100 {
		r.end("x")
	}
	r.Set(open(t, b, func(s *sessionlog.Settings) { s.Template, s.Without = "{id}", map[string]bool{"none": true} }))
	if !r.Has(sessionlog.End, "web") || !r.Has(sessionlog.End, "") || r.Has(sessionlog.End, "none") || r.Has(sessionlog.Start, "web") {
		t.Error("which lines there are")
	}
	for range 50 {
		r.end("x")
	}
	r.settled(t)
	if x, y := len(lines(t, a)), len(lines(t, b)); x < 100 || x+y != 150 {
		t.Errorf("%d and %d lines", x, y)
	}
	r.Set(nil)
	r.end("x")
	if r.Records("web", record.ID{}) || r.Has(sessionlog.End, "web") || r.Counts().Lines != 150 {
		t.Errorf("%+v", r.Counts())
	}
}

// TestDestinations: destinations, and those that are none.
func TestDestinations(t *testing.T) {
	for text, ok := range map[string]bool{
		"stderr": true, "journald": true, "/a/b": true, "syslog+udp://192.0.2.1:514": true, "syslog+udp:[::1]:514": true, "syslog+unix:/dev/log": true, "syslog+unix:///dev/log": true,
		"": false, "a/b": false, "syslog+udp://log.example:514": false, "syslog+tcp://192.0.2.1:514": false, "syslog+unix:dev/log": false, "journald:run/socket": false, "syslog+udp://192.0.2.1": false,
	} {
		if _, err := sessionlog.ParseDestination(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestFailureIsOfTheDestination: after a change of the destination the losses of the one before are reported with its
// error, which is the log's no longer. An error of the new one is reported at once.
func TestFailureIsOfTheDestination(t *testing.T) {
	t.Parallel()

	before, after := filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "after")
	for _, path := range []string{before, after} { // no process reads them
		must(t, syscall.Mkfifo(path, 0o600))
	}
	r := newRig(t, before, nil)
	fails := func(path string) {
		t.Helper()
		condition.Await(t, "it has failed", func() bool {
			failed := r.Failed()
			return failed != nil && strings.Contains(failed.Err.Error(), path)
		})
	}
	r.end("waits")
	fails(before)
	r.Set(open(t, after, nil))
	fails(after)
	r.Set(open(t, filepath.Join(t.TempDir(), "well"), nil))
	condition.Await(t, "nothing has failed", func() bool { return r.Failed() == nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, report := range r.reports {
		got = append(got, strings.NewReplacer(before, "BEFORE", after, "AFTER", ": no process reads the FIFO", "", "1 <nil>", "1 open BEFORE").Replace(report))
	}
	if want := []string{"0 open BEFORE", "1 open BEFORE", "0 open AFTER"}; !slices.Equal(got, want) {
		t.Errorf("reports: %q, want %q", got, want)
	}
}

// TestLostAtTheEnd: lines that wait for a reader when everything ends are counted, and reported, though another report
// was just before.
func TestLostAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(path, 0o600))
	r := newRig(t, path, nil)
	for range 3 {
		r.end("waits")
	}
	last := func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Join(r.reports, "; ")
	}
	condition.Await(t, "it is reported that no process reads", func() bool { return strings.HasPrefix(last(), "0 open "+path) })
	r.Set(nil)
	condition.Await(t, "the lines are counted", func() bool { return r.Counts().Lost() == 3 })
	r.closed = true
	must(t, r.Close())
	if got := last(); !strings.Contains(got, "; 3") {
		t.Errorf("reports: %s", got)
	}
}

// TestLostWhileHung: Close says how many lines are lost if a write hangs then: those of that write, and all since.
func TestLostWhileHung(t *testing.T) {
	t.Parallel()

	r, until := newRig(t, filepath.Join(t.TempDir(), "none"), nil), make(chan struct{})
	next := open(t, filepath.Join(t.TempDir(), "s.log"), nil)
	next.Hang(until)
	r.Set(next)
	condition.Await(t, "a line waits", func() bool { // earlier lines may go to the destination before
		r.end("a")
		return r.Waits() != 0
	})
	for range 100 {
		r.end("b")
	}
	r.closed = true
	err, want := r.Close(), fmt.Sprintf("up to %d lines are lost", r.added-r.Counts().Lines)
	close(until)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	r.settled(t)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
