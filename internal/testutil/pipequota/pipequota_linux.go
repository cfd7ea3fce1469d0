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

// large is the largest pipe that Penstock asks for unless it is configured otherwise.
const large = 1 << 20

// held is the lock that the tests of this process have.
var held struct {
	sync.Mutex
	users int
	how   int      // syscall.LOCK_SH or LOCK_EX
	lock  *os.File // nil: there is none
}

// Share waits until no test of another process of the user spends the quota, and prevents
// that until the test ends. Like [Spend] it may be called more than once, and skips the test
// if other programs leave no quota for a pipe of 1 MiB for a minute.
func Share(t testing.TB) {
	t.Helper()
	hold(t, syscall.LOCK_SH)
}

// Spend waits until no test of another process of the user shares or spends the quota, and
// prevents that until the test ends. Tests of one process that run at the same time must all
// share the quota, or all spend it.
func Spend(t testing.TB) {
	t.Helper()
	hold(t, syscall.LOCK_EX)
}

// ShareUntilExit is [Share] for a TestMain: examples have no test to be shared by.
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

// take reports whether there is a lock, since a quota binds the process.
func take(how int) (bound bool, err error) {
	held.Lock()
	defer held.Unlock()
	switch {
	case held.users == 0:
		held.how = how
		held.lock, err = acquire(how)
	case held.how != how:
		err = errors.New("a test of this process shares the quota of pipes, and another one spends it")
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

// await waits for processes that are no tests of Penstock.
func await(t testing.TB) {
	t.Helper()
	if !condition.Eventually(func() bool { return room(t) }) {
		t.Skip("other processes of this user hold the pipes that it may have")
	}
}

// acquire locks the user's pipes if a quota binds this process (fs/pipe.c,
// pipe_is_unprivileged_user). A process that locks them holds the gate meanwhile, so that
// processes that share them do not keep the one away for ever that wants to spend them.
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

// lock locks a file of the user's (flock(2)) until it is closed. Without a directory for it,
// which a user with other processes has, it returns nil, which may be closed.
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

// holder is set in the environment of a process that has the lock, so that those that it
// starts, and waits for, do not wait for it in their turn.
const holder = "PENSTOCK_TEST_PIPES"

// room reports whether a pipe of 1 MiB, or of the largest size that this machine allows, can
// be made.
func room(t testing.TB) bool {
	t.Helper()
	r, w, err := sys.Pipe2(sys.O_CLOEXEC)
	if err != nil {
		return err != syscall.ENFILE // the hard quota; other errors have other reasons
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
