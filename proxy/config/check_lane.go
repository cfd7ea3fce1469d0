package config

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
		k.warnAt(k.at(l, l), "write lane: auto at a listener, or leave it out", "no listener has sessions leave user space")
	}
}
