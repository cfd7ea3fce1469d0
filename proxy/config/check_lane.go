package config

import "slices"

// lane checks that what is pinned has a place, and warns of settings that nothing uses.
func (k *checker) lane(c *Config) {
	l := &c.Lane
	if k.bad[l] {
		return
	}
	if l.Leave && l.Pins == "" && !k.bad[&l.Pins] && !k.partial {
		k.complainAt(k.at(&l.Leave, l), "write pins: and a directory of a BPF file system, or leave it out", "sessions can go on without this process only where they are pinned")
	}
	if k.given(l) && !c.WantsLane() && !k.partial {
		hint := "write lane: auto at a listener, or leave it out"
		if l.Pins != "" {
			hint = "write lane: auto at a listener; to leave it out run penstock lane flush before, or sessions that are pinned there go on without any process"
		}
		k.warnAt(k.at(l, l), hint, "no listener has sessions leave user space")
	}
	k.devices(l)
}

// devices checks that each has a name of its own. Whether it is there is known when the lane is opened.
func (k *checker) devices(l *Lane) {
	for i, name := range l.Devices {
		switch {
		case k.bad[&l.Devices]:
			return
		case name == "":
			k.complainAt(k.at(&l.Devices, l), "write its name, such as eth0, or leave it out", "a device has no name")
			return
		case slices.Contains(l.Devices[:i], name):
			k.complainAt(k.at(&l.Devices, l), "write it once", "the device %s is named twice", name)
			return
		}
	}
}
