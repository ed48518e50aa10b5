package cufileapi

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/cufileconf"
	"github.com/culvert-io/culvert/internal/env"
)

// defaultFile is the configuration where CUFILE_ENV_PATH_JSON names none.
const defaultFile = "/etc/cufile.json"

// readConfiguration reads cufile.json and the CUFILE_ variables. What is wrong with
// them is logged once. Call with a.mu held.
func (a *API) readConfiguration() {
	name := env.Get("CUFILE_ENV_PATH_JSON")
	named := name != ""
	if !named {
		name = defaultFile
	}
	file, err := cufileconf.ReadFile(name)
	if err != nil && (named || !errors.Is(err, fs.ErrNotExist)) {
		a.warn(name, err)
	}
	variables := cufileconf.FromEnvironment(env.Get)
	a.params.conf = cufileconf.Of(file, variables)
	for _, list := range [][]cufileconf.Setting{file, variables} {
		for i := range list {
			switch s := &list[i]; {
			case s.Unknown:
				a.warn(name+": "+s.Where(), fmt.Errorf("unknown key %s", s.Key))
			case s.Err != nil:
				a.warn(name+": "+s.Where(), fmt.Errorf("%s: %w", s.Key, s.Err))
			}
		}
	}
	if level, ok := a.params.conf.Number("profile.cufile_stats"); ok && level > 0 {
		a.stats.configure(int32(level))
	}
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
