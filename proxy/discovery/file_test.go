package discovery_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/discovery"
)

// file is a rig of a file, with the kernel's events and no polling.
func file(t *testing.T, path string) *rig {
	r := &rig{t: t, log: new(software.Output)}
	return r.watch(discovery.NewFile(discovery.FileConfig{
		Path: path, Parse: parse, Poll: time.Hour, Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}))
}

// status waits until the source's status is as expected.
func (r *rig) status(what string, as func(discovery.Status) bool) {
	r.t.Helper()
	if !condition.Eventually(func() bool { return as(r.source.Status()) }) {
		r.t.Fatalf("not %s: status %+v", what, r.source.Status())
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "eps.yaml")
	must(t, replace(path, "a:1*1 b:1*1"))
	r := (&rig{t: t}).watch(discovery.NewFile(discovery.FileConfig{Path: path, Parse: parse}))
	equal(t, r.next(), "a:1*1 b:1*1")
	must(t, replace(path, "b:1*1 c:1*5b"))
	equal(t, r.next(), "b:1*1 c:1*5b")
	must(t, replace(path, ""))
	equal(t, r.next(), "")
	if s := r.source.Status(); s.Kind != "file" || s.From != path || s.Err != nil || s.Endpoints != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestBadFileChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "eps.yaml")
	must(t, replace(path, "a:1*1 b:1*1"))
	r := file(t, path)
	equal(t, r.next(), "a:1*1 b:1*1")
	for i, bad := range []string{"a:1*1 b", "a:1*x"} {
		must(t, replace(path, bad))
		r.status("bad", func(s discovery.Status) bool {
			return s.Failures == i+1 && strings.HasPrefix(s.Err.Error(), path+":") && s.Stale && s.Endpoints == 2
		})
		r.silence()
	}
	must(t, os.Remove(path))
	r.status("gone", func(s discovery.Status) bool { return errors.Is(s.Err, os.ErrNotExist) && s.Stale })
	equal(t, r.logged("the file of endpoints cannot be used: the endpoints that are already known stay"), 2)
	equal(t, r.logged("the file of endpoints is missing: the endpoints that are already known stay"), 1)

	must(t, replace(path, "a:1*1 b:1*1")) // as before: valid, and no update
	r.status("good", func(s discovery.Status) bool { return s.Err == nil && !s.Stale && s.Failures == 0 })
	equal(t, r.logged("can be used again"), 1)
	must(t, replace(path, "c:1*1"))
	equal(t, r.next(), "c:1*1")
}

func TestFileThatComesLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "eps.json")
	r := file(t, path)
	r.status("missing", func(s discovery.Status) bool { return errors.Is(s.Err, os.ErrNotExist) && s.Endpoints == 0 })
	r.silence()
	equal(t, r.logged("the file of endpoints is missing: no endpoints are known yet"), 1)
	must(t, replace(path, "a:1*1"))
	equal(t, r.next(), "a:1*1")
}

func TestWhatIsNoFileOfEndpoints(t *testing.T) {
	dir := t.TempDir()
	huge := filepath.Join(dir, "huge")
	must(t, write(huge, ""), os.Truncate(huge, 65<<20))
	for path, want := range map[string]string{dir: "not a regular file", huge: "is larger than"} {
		file(t, path).status(want, func(s discovery.Status) bool { return s.Err != nil && strings.Contains(s.Err.Error(), want) })
	}
}

// TestFileThatFailsOnce: a file that could not be used once is read again, though its bytes are the same.
func TestFileThatFailsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "eps.yaml")
	must(t, replace(path, "a:1*1"))
	failed := false
	r := (&rig{t: t}).watch(discovery.NewFile(discovery.FileConfig{
		Path: path, Poll: time.Millisecond, Parse: func(name string, text []byte) ([]discovery.Endpoint, error) {
			if !failed {
				failed = true
				return nil, errors.New("it was being written")
			}
			return parse(name, text)
		},
	}))
	select {
	case e := <-r.updates:
		equal(t, text(e), "a:1*1")
	case <-time.After(2 * time.Second):
		t.Error("it is not read again")
	}
}

// TestForeignList: of a list that another user may write, only that user's unix sockets are used, as soon as they are there.
func TestForeignList(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to have files of another user")
	}
	const nobody = 65534
	dir := t.TempDir()
	path, ours, theirs := filepath.Join(dir, "eps.yaml"), filepath.Join(dir, "ours"), filepath.Join(dir, "theirs")
	must(t, write(ours, ""))
	must(t, write(path, "unix:"+ours+"*1 unix:"+theirs+"*1 unix:@abstract*1 a:1*1"))
	refused := func(r *rig) (list []string) {
		select {
		case found := <-r.updates:
			for _, e := range found {
				if e.Refused != "" {
					list = append(list, strings.TrimPrefix(e.Address, "unix:"))
				}
			}
		case <-time.After(condition.Patience):
			t.Fatal("no update")
		}
		return list
	}
	listed := func() *rig {
		return (&rig{t: t}).watch(discovery.NewFile(discovery.FileConfig{Path: path, Parse: parse, Poll: 10 * time.Millisecond}))
	}
	if list := refused(listed()); len(list) != 0 {
		t.Fatalf("of a list of this user: %q", list)
	}
	must(t, os.Chmod(path, 0o666))
	if list := refused(listed()); !slices.Equal(list, []string{ours, theirs, "@abstract"}) {
		t.Fatalf("of a list that every user may write: %q", list)
	}
	must(t, errors.Join(os.Chown(path, 0, nobody), os.Chmod(path, 0o664)))
	if list := refused(listed()); !slices.Equal(list, []string{ours, theirs, "@abstract"}) {
		t.Fatalf("of a list that a group may write: %q", list)
	}
	must(t, errors.Join(os.Chmod(path, 0o644), os.Chown(path, nobody, nobody)))
	r := listed()
	if list := refused(r); !slices.Equal(list, []string{ours, theirs, "@abstract"}) {
		t.Fatalf("of another user's list: %q", list)
	}
	must(t, errors.Join(write(theirs+".tmp", ""), os.Chown(theirs+".tmp", nobody, nobody), os.Rename(theirs+".tmp", theirs)))
	if list := refused(r); !slices.Equal(list, []string{ours, "@abstract"}) {
		t.Fatalf("once the other user's socket is there: %q", list)
	}
	must(t, write(path, "no list"), os.Rename(ours, theirs))
	if list := refused(r); !slices.Equal(list, []string{ours, theirs, "@abstract"}) {
		t.Fatalf("once this user has a socket in its place, and the list is invalid: %q", list)
	}
}
