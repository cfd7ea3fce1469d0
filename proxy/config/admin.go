package config

// AdminBind reads where the process of a file is asked and told; "" for nowhere. Of the rest
// it looks only at what is included, as far as it can: variables that are not set, and files
// that cannot be read, matter only if they may be why nothing was found. So whoever asks
// needs not what the process needs.
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
