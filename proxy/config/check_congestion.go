package config

import (
	"errors"
	"slices"
	"strings"
	"syscall"
)

// congestion complains of a congestion control that this kernel does not list, or that this process may
// not use. Whatever cannot be found out is a warning.
func (k *checker) congestion(name *string, section any) {
	if *name == "" || k.bad[name] {
		return
	}
	at := k.at(name, section)
	available, allowed, err := k.controls()
	switch {
	case err != nil:
		k.uncontrolled(at, *name, err)
		return
	case !slices.Contains(available, *name):
		k.complainAt(at, mendCongestion(available)+", or load the module tcp_"+*name, "this kernel lists no congestion control %s", *name)
		return
	case slices.Contains(allowed, *name):
		return
	}
	switch _, err := k.control(*name); {
	case err == nil: // for CAP_NET_ADMIN
	case errors.Is(err, syscall.EPERM):
		k.complainAt(at, mendCongestion(allowed)+", or give this process CAP_NET_ADMIN", "the congestion control %s takes CAP_NET_ADMIN, which this process does not have", *name)
	default:
		k.uncontrolled(at, *name, err)
	}
}

// uncontrolled warns that the kernel could not be asked for a congestion control.
func (k *checker) uncontrolled(at place, name string, err error) {
	k.warnAt(at, "see /proc/sys/net/ipv4/tcp_available_congestion_control on the machine on which it is to run: sockets that cannot have it have that of the system",
		"whether this kernel has the congestion control %s is unknown: %v", name, err)
}

// mendCongestion names all that may be written.
func mendCongestion(list []string) string {
	return "write one of " + strings.Join(slices.Sorted(slices.Values(list)), ", ")
}
