package lane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/state"
	"github.com/penstock/penstock/lane/internal/translate"
)

// bpfFileSystem is BPF_FS_MAGIC (include/uapi/linux/magic.h).
const bpfFileSystem = 0xcafe4a11

// lockPin locks the directory of pins, so that only one process has the lane. It returns -1 if dir is empty.
func lockPin(dir string) (fd int, err error) {
	if dir == "" {
		return -1, nil
	}
	fd, err = syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("lane: directory of pins: %w", &os.PathError{Op: "open", Path: dir, Err: err})
	}
	var fs syscall.Statfs_t
	var of syscall.Stat_t
	switch err = errors.Join(syscall.Fstatfs(fd, &fs), syscall.Fstat(fd, &of)); {
	case err != nil:
	case uint32(fs.Type) != bpfFileSystem:
		err = fmt.Errorf("no BPF file system: %w", os.ErrInvalid)
	case of.Uid != 0 && int(of.Uid) != os.Geteuid(), of.Mode&0o022 != 0: // whoever can write there could plant programs
		err = fmt.Errorf("other users can write there: %w", os.ErrPermission)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return -1, fmt.Errorf("lane: directory of pins %s: %w", dir, err)
	}
	if err = sys.Flock(fd, sys.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		err = busy(locker(fd))
	}
	if err != nil {
		_ = syscall.Close(fd)
		return -1, fmt.Errorf("lane: directory of pins %s: %w", dir, err)
	}
	return fd, nil
}

// busy returns ErrBusy with the process that has the lane. A pid of 0 means that it was not found.
func busy(pid int) error {
	if pid == 0 {
		return fmt.Errorf("%w, owner unknown", ErrBusy)
	}
	return fmt.Errorf("%w, by process %d", ErrBusy, pid)
}

// locker returns the process that has locked an open file (proc_locks(5)), or 0 if it is not known.
func locker(fd int) (pid int) {
	var st syscall.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || syscall.Fstat(fd, &st) != nil {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", st.Dev>>8&0xfff, st.Dev&0xff|st.Dev>>12&0xfff00, st.Ino)
	for line := range strings.Lines(string(locks)) {
		if of := strings.Fields(line); len(of) > 5 && of[1] == "FLOCK" && of[5] == file {
			pid, _ = strconv.Atoi(of[4])
		}
	}
	return pid
}

// maxHeld is the number of descriptors at which holder looks in each process. A process opens its lane early,
// so the lane's descriptors have small numbers.
const maxHeld = 1024

// holder looks for the process that has a BPF program open, among the processes with this process's name. It
// returns 0 if there is none.
func holder(program ebpf.ProgramID) int {
	own, _ := os.ReadFile("/proc/self/comm")
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if of, err := os.ReadFile(name); err != nil || !bytes.Equal(of, own) {
			continue
		}
		dir := filepath.Dir(name)
		for fd := range maxHeld {
			info, _ := os.ReadFile(fmt.Sprintf("%s/fdinfo/%d", dir, fd))
			if bytes.Contains(info, fmt.Appendf(nil, "prog_id:\t%d\n", program)) {
				pid, _ := strconv.Atoi(filepath.Base(dir))
				return pid
			}
		}
	}
	return 0
}

func unlock(fd int) error {
	if fd < 0 {
		return nil
	}
	return syscall.Close(fd)
}

// adopt looks at every slot; most are free. Sessions that an earlier process had in user space died with it.
// Its sessions in the lane go on, and are adopted, unless their record is damaged. The kernel has the
// connections of a damaged session again, and resets an endpoint that sends something.
func (l *Lane) adopt() {
	for slot := l.program.Size(); slot > 0; slot-- {
		r := l.program.Session(slot - 1)
		l.generation = max(l.generation, r.Generation)
		switch at := r.State(); {
		case at == state.Free:
			l.free.give(slot - 1)
		case at == state.User, at == state.Armed, at == state.Claimed:
			r.Change(state.User, state.Armed, state.Claimed)
			l.program.Forget(slot - 1)
			r.Change(state.Free, state.User)
			l.batch.ended = append(l.batch.ended, slot-1)
		case !l.program.IsSound(slot - 1):
			l.program.Discard(slot - 1)
			l.batch.ended = append(l.batch.ended, slot-1)
			l.counts.failed.Add(1)
		default:
			l.adoptOne(slot - 1)
		}
	}
	l.knocked()
}

// adoptOne adopts a session in the lane, and holds its local port.
func (l *Lane) adoptOne(slot uint32) {
	s := &Session{of: l.unowned, slot: slot, hold: -1, phase: away, facts: graced | inherited | flew}
	l.sessions[slot] = s
	r := s.record()
	r.NotAfter(time.Duration(now()))
	if r.IsReported() { // it ended in the earlier process, and lingers
		s.end(now())
		s.set(done, true)
		return
	}
	if r.ToBeReset() {
		r.Change(state.Reset, state.Held) // the earlier process died while it ended the session
	}
	if r.State() == state.Held { // the earlier process died while the session came back; the new sockets were in repair, and closed silently
		to := state.Lane
		if f := s.flows(); translate.Ended(&f[0], &f[1]) || r.WasReset() {
			to = state.Done
		}
		r.Change(to, state.Held)
	}
	switch r.State() {
	case state.Lane:
		leg := r.Leg(1)
		hold, err := sys.Established(leg.Local, leg.Remote, 0, 0)
		if err != nil {
			l.counts.failed.Add(1)
		}
		s.hold = int32(hold)
		l.counts.adopted.Add(1)
	case state.Done:
		s.set(unseen, true)
	case state.Reset:
		s.over(true, nil)
	}
}

// Own gives an owner to an adopted session that is in the lane. From then on s, which must be a zero Session,
// is the session, with its tag, age and bytes. The adopted Session ends, and has no place any more. The owner
// can take s back like a session of [Lane.Register] that has left. s may be a field of a larger struct.
//
// moved is how many bytes were moved in each direction before the session last left user space. The owner must
// know this from the earlier process, for example by the tag. If the owner has a user timeout and a keepalive
// time, they apply from now on. An [Observer] is notified again of an end of file that came earlier.
//
// A session that ended while no process had the lane still gets an owner within [Config.Linger] after Open, and the owner is told
// of its end.
//
// The error wraps net.ErrClosed if the adopted session has ended or is being reset, and after Close. It wraps
// os.ErrInvalid if it is a session of this process, if s is not a zero Session, or if owner is missing or not
// comparable. After an error s is unchanged.
func (l *Lane) Own(adopted, s *Session, owner Owner, moved [2]uint64) error {
	if adopted == nil || s == nil || s == adopted || owner == nil || !reflect.ValueOf(owner).Comparable() || adopted.lane() != l {
		return fmt.Errorf("lane: own: pass a session of this lane, another Session, and a comparable owner: %w", os.ErrInvalid)
	}
	var m mark
	m.askTimes(owner, s) // without the lock, like all calls of an owner's methods
	l.mu.Lock()
	defer l.mu.Unlock()
	adopted.mu.Lock()
	defer adopted.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !l.open, adopted.phase == over, adopted.is(toReset), adopted.dead != 0:
		return fmt.Errorf("lane: own: the session has ended: %w", net.ErrClosed)
	case adopted.phase != away, !adopted.is(inherited), adopted.owner() != nil, s.of != nil:
		return fmt.Errorf("lane: own: the session is not in the lane, or belongs to this process, or the Session was used before: %w", os.ErrInvalid)
	}
	s.of, s.slot, s.hold, s.phase = l.ownershipOf(owner), adopted.slot, adopted.hold, away
	s.facts = adopted.facts | readied | handed
	s.setMoved(moved)
	s.of.count(1)
	s.markTimes(&m)
	l.sessions[s.slot] = s
	adopted.hold = -1
	adopted.end(adopted.since())
	adopted.finish()
	return nil
}

// resetHere resets a session that is in user space, or that was already being reset. A session in the lane goes
// on, and this process only forgets it.
func (s *Session) resetHere() {
	s.mu.Lock()
	ends := s.disarm() || s.is(toReset)
	s.set(toReset, ends)
	s.mu.Unlock()
	if ends {
		s.cut()
		return
	}
	s.noteLeft()
	s.settle() // a session that has ended does not go on
	owed := s.owner() != nil && s.left() && s.lane().owes(s, parting{left: true})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(forgotten, true)
	if s.phase == away && !s.is(toReset) || owed && s.phase == leaving && !s.is(handed) {
		s.forget()
	}
}

// goesOn reports whether a session goes on without this process, or must be ended by the next one. It is called
// when no session can leave user space any more. It reads the programs' memory, which shows each session that
// has left, even if this process has not noticed yet.
func (l *Lane) goesOn() bool {
	for _, s := range l.Sessions() {
		s.mu.Lock()
		stays := s.stays()
		s.mu.Unlock()
		if stays != None {
			continue // it has no record
		}
		switch r := s.record(); r.State() {
		case state.Lane, state.Held:
			return true
		case state.Done:
			if !r.IsReported() {
				return true
			}
		}
	}
	return false
}

// forget ends a session in this process only. The session itself goes on. It needs the lock.
func (s *Session) forget() {
	s.end(s.since())
	s.finish()
}

// Repin restores the pins in [Config.Pin] after they were removed, so that sessions survive this process again.
// It pins the programs and their maps if all files are gone, and reports whether it did so. It is cheap: call
// it now and then. After an error nothing is changed, and sessions in the lane would not survive this process.
// The error wraps [fs.ErrNotExist] if only some of the files are missing, or if the directory of Open is gone.
// It wraps [fs.ErrExist] if there are files of another lane. Without pins Repin does nothing.
func (l *Lane) Repin() (again bool, err error) {
	l.pins.Lock()
	defer l.pins.Unlock()
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	switch {
	case !open:
		return false, fmt.Errorf("lane: pins: %w", net.ErrClosed)
	case l.lock < 0:
		return false, nil
	}
	if err = l.isLocked(); err == nil {
		again, err = l.program.Repin()
	}
	if err != nil {
		return false, fmt.Errorf("lane: pins: %w", err)
	}
	return again, nil
}

// isLocked returns an error if the directory of pins is not the directory that Open has locked.
func (l *Lane) isLocked() error {
	var at, ours syscall.Stat_t
	if err := syscall.Stat(l.cfg.Pin, &at); err != nil {
		return &fs.PathError{Op: "stat", Path: l.cfg.Pin, Err: err}
	}
	if err := syscall.Fstat(l.lock, &ours); err != nil {
		return &fs.PathError{Op: "fstat", Path: l.cfg.Pin, Err: err}
	}
	if at.Dev != ours.Dev || at.Ino != ours.Ino {
		return fmt.Errorf("the directory %s was removed and made anew: %w", l.cfg.Pin, fs.ErrNotExist)
	}
	return nil
}

// unpin removes the pins at the end of the lane.
func (l *Lane) unpin() error {
	l.pins.Lock()
	defer l.pins.Unlock()
	return l.program.Unpin()
}
