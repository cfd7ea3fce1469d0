package config

// AdminBind reads the address of the admin API from a configuration file; it is "" if there is
// none. Apart from it, only the included files are read, as far as possible. Unset variables and
// unreadable files matter only if they may be the reason that no address was found. So the
// caller needs neither the variables nor the files of the process.
func AdminBind(path string, env Env) (string, []Problem) {
	l := newLoader(env)
	l.adminOnly = true
	l.file(path, place{})
	return l.adminBind()
}

func (l *loader) adminBind() (string, []Problem) {
	a := l.cfg.Admin
	if a == nil || l.twice || l.bad[&a.Bind] || !l.given(&a.Bind) {
		return "", l.found()
	}
	l.problems = nil
	(&checker{decoder: &l.decoder}).private(&a.Bind)
	if len(l.problems) > 0 {
		return "", l.found()
	}
	return a.Bind.String(), nil
}
