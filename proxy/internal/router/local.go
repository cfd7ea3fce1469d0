package router

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
)

// localFaults are how connect(2), and socket(2) and bind(2) before it, fail for want of something
// in this process or on this machine: descriptors, memory, ports, an address, a permission.
// EACCES is also a unix socket that this process may not write to, and EPERM a rule of the
// machine's firewall: for these the endpoint is judged all the same, see ownFault.
var localFaults = [...]syscall.Errno{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EACCES, syscall.EPERM,
}

// localCounts count connections that could not be made for want of something on this machine,
// by localFaults.
type localCounts [len(localFaults)]atomic.Int64

// note counts an error, if it is of localFaults.
func (c *localCounts) note(err error) {
	if i := localFault(err); i >= 0 {
		c[i].Add(1)
	}
}

// localFault returns which of localFaults an error is; -1 for none.
func localFault(err error) int {
	return slices.IndexFunc(localFaults[:], func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// localAlone reports whether every connection that the client waited for failed for want of
// something on this machine.
func (s *Search) localAlone() bool {
	return len(s.failures) > 0 && !slices.ContainsFunc(s.failures, func(f failure) bool { return localFault(f.err) < 0 })
}

// LocalFaults returns how many connections could not be made for want of something in this
// process or on this machine.
func (u *Upstream) LocalFaults() int64 { return total(u.local[:]) }

// LocalCauses returns LocalFaults by their causes.
func (u *Upstream) LocalCauses() map[string]int64 {
	return byName(u.local[:], func(i int) string { return localFaults[i].Error() })
}
