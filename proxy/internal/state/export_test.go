package state

// BeforeWrite has f be called before each write of the file.
func (s *Store) BeforeWrite(f func()) {
	s.replace = func(path string, data []byte) error {
		f()
		return replace(path, data)
	}
}

// OpenWith is Open, and calls a function each time when the lock file is open and not locked yet.
func OpenWith(path string, opened func()) *Store { return openWith(path, opened) }
