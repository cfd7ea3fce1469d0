package pipequota

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
)

// large is the size of Penstock's largest pipes by default.
const large = 1 << 20

// held is the lock that tests of this process hold.
var held struct {
	sync.Mutex
	users int
	how   int      // syscall.LOCK_SH or LOCK_EX
	lock  *os.File // nil: there is none
}

// Share waits until no test of the user's other processes spends the quota, and prevents that until the test
// ends. Like [Spend] it may be called more than once. It skips the test if for a minute other programs leave no
// quota for a pipe of 1 MiB.
func Share(t testing.TB) {
	t.Helper()
	hold(t, syscall.LOCK_SH)
}

// Spend waits until no test of the user's other processes shares or spends the quota, and prevents that until
// the test ends. Tests of one process that run at the same time must all share the quota, or all spend it.
func Spend(t testing.TB) {
	t.Helper()
	hold(t, syscall.LOCK_EX)
}

// ShareUntilExit is [Share] for a TestMain, because examples have no test.
func ShareUntilExit() {
	if _, err := take(syscall.LOCK_SH); err != nil {
		log.Fatal(err)
	}
}

func hold(t testing.TB, how int) {
	t.Helper()
	bound := must.Get(take(how))(t)
	t.Cleanup(give)
	if bound {
		await(t)
	}
}

// take locks the quota, and reports whether a quota binds the process.
func take(how int) (bound bool, err error) {
	held.Lock()
	defer held.Unlock()
	switch {
	case held.users == 0:
		held.how = how
		held.lock, err = acquire(how)
	case held.how != how:
		err = errors.New("one test of this process shares the quota of pipes while another spends it")
	}
	if err != nil {
		return false, err
	}
	held.users++
	if held.lock == nil {
		return false, nil
	}
	return true, os.Setenv(holder, "locked")
}

func give() {
	held.Lock()
	defer held.Unlock()
	if held.users--; held.users == 0 && held.lock != nil {
		held.lock.Close()
		os.Unsetenv(holder)
	}
}

// await waits for processes that are not tests of Penstock.
func await(t testing.TB) {
	t.Helper()
	if !condition.Eventually(func() bool { return room(t) }) {
		t.Skip("other processes of this user hold the pipes that it may have")
	}
}

// acquire locks the user's pipes if a quota binds this process (fs/pipe.c, pipe_is_unprivileged_user). A
// process holds the gate while it waits for the lock, so that processes that share the pipes do not keep away
// forever a process that wants to spend them.
func acquire(how int) (*os.File, error) {
	if os.Getenv(holder) != "" {
		return nil, nil
	}
	set, err := sys.Capabilities()
	if err != nil || set.Has(sys.CAP_SYS_ADMIN) || set.Has(sys.CAP_SYS_RESOURCE) {
		return nil, err
	}
	gate, err := lock("gate", how)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	return lock("quota", how)
}

// lock locks a file of the user (flock(2)) until the file is closed. If the process may not open it, because it
// runs as a user without other processes, lock returns nil, which may be closed.
func lock(name string, how int) (*os.File, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("penstock-test-pipes-%d.%s", os.Getuid(), name))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return f, os.NewSyscallError("flock", err)
		}
	}
}

// holder is set in the environment of a process that has the lock, so that its children, for which it waits, do
// not wait for the lock.
const holder = "PENSTOCK_TEST_PIPES"

// room reports whether a pipe of 1 MiB can be made, or of the largest size that this machine allows.
func room(t testing.TB) bool {
	t.Helper()
	r, w, err := sys.Pipe2(sys.O_CLOEXEC)
	if err != nil {
		return err != syscall.ENFILE // the hard quota; other errors have other causes
	}
	defer sys.Close(r)
	defer sys.Close(w)
	most, err := os.ReadFile("/proc/sys/fs/pipe-max-size")
	must.Do(t, err)
	size, err := strconv.Atoi(strings.TrimSpace(string(most)))
	must.Do(t, err)
	_, err = sys.SetPipeSize(w, min(size, large))
	return err == nil
}
