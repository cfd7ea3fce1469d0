package server

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// laneDevices returns the loopback and the Ethernet devices that are up and have an address.
func laneDevices() (names []string, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, d := range all {
		if d.Flags&net.FlagUp == 0 || d.Flags&net.FlagLoopback == 0 && len(d.HardwareAddr) != 6 {
			continue
		}
		if addresses, err := d.Addrs(); err == nil && len(addresses) > 0 {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		err = errors.New("no device is up and has an address")
	}
	return names, err
}

// CheckLaneDevices returns why the lane cannot be at devices of lane.devices: those that this network namespace does not have, or that are neither Ethernet
// nor the loopback.
func CheckLaneDevices(names []string) error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("lane.devices: %w", err)
	}
	var missing, others []string
	for _, name := range names {
		switch i := slices.IndexFunc(all, func(d net.Interface) bool { return d.Name == name }); {
		case i < 0:
			missing = append(missing, name)
		case all[i].Flags&net.FlagLoopback == 0 && len(all[i].HardwareAddr) != 6:
			others = append(others, name)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("lane.devices: there is no network device %s here", strings.Join(missing, ", "))
	case len(others) > 0:
		return fmt.Errorf("lane.devices: neither Ethernet nor the loopback: %s", strings.Join(others, ", "))
	}
	return nil
}
