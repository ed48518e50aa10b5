package cufileapi

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/culvert-io/culvert/clib/internal/logfile"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/cufileconf"
)

// defaultFile is the configuration where CUFILE_ENV_PATH_JSON names none.
const defaultFile = "/etc/cufile.json"

// configure reads what the next open of the driver is configured with. Call with a.mu
// held.
func (a *API) configure() cufile.Config {
	name, lists := a.readConfiguration()
	v := a.settings()
	a.openJournal(v)
	for _, list := range lists {
		for i := range list {
			a.note(name, &list[i], v)
		}
	}
	if level, ok := v.Number("profile.cufile_stats"); ok && level > 0 {
		a.stats.configure(int32(level))
	}
	return v.Config()
}

// openJournal opens the log file.
func (a *API) openJournal(v cufileconf.Values) {
	text, _ := v.Text("logging.level")
	level, _ := logfile.ParseLevel(text)
	c := logfile.Config{Path: v.LogPath(), Level: level, Limit: v.LogLimit()}
	if err := a.Journal.Configure(c); err != nil {
		a.warn(c.Path, err)
	}
	a.pauseLeases()
}

// note logs what a setting does, or what is wrong with it.
func (a *API) note(file string, s *cufileconf.Setting, v cufileconf.Values) {
	where := file + ": " + s.Where()
	switch {
	case s.Unknown:
		a.warn(where, fmt.Errorf("unknown key %s", s.Key))
	case s.Err != nil:
		a.warn(where, fmt.Errorf("%s: %w", s.Key, s.Err))
	default:
		a.Journal.Write(logfile.Info, "cuFileDriverOpen", "%s: %s = %s: %s", where, s.Key, s.Value, v.Effect(s))
	}
}

// readConfiguration reads cufile.json and the CUFILE_ variables. Call with a.mu held.
func (a *API) readConfiguration() (name string, lists [][]cufileconf.Setting) {
	name = a.variable("CUFILE_ENV_PATH_JSON")
	named := name != ""
	if !named {
		name = defaultFile
	}
	file, err := cufileconf.ReadFile(name)
	if err != nil && (named || !errors.Is(err, fs.ErrNotExist)) {
		a.warn(name, err)
	}
	variables := cufileconf.FromEnvironment(a.variable)
	a.params.conf = cufileconf.Of(file, variables)
	return name, [][]cufileconf.Setting{file, variables}
}

// variable is the value of a variable; empty if it is not set.
func (a *API) variable(name string) string {
	value, _ := a.Variable(name)
	return value
}

// warn logs a mistake in the configuration, once in the process.
func (a *API) warn(where string, err error) {
	key := where + err.Error()
	if a.params.warned[key] {
		return
	}
	a.params.warned[key] = true
	a.Log("cuFileDriverOpen", &cufile.Error{Op: "read configuration", Object: where, Code: cufile.InvalidValue, Err: err})
}
