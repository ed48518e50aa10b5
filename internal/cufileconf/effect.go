package cufileconf

import (
	"fmt"
	"strings"
)

// Effect says what a setting does on this machine.
func (v Values) Effect(s *Setting) string {
	k := keys[s.Key]
	switch {
	case s.Unknown:
		return "unknown key: ignored"
	case s.Err != nil:
		return "invalid value: " + s.Err.Error()
	case k.none != "":
		return "no effect: " + k.none
	case v[s.Key] != s.from:
		return "no effect: set again elsewhere"
	case !v.changed(s.Key):
		return "no effect: NVIDIA's stock value asks for nothing"
	}
	return v.meaning(s.Key)
}

// meaning is the effect of a changed key.
func (v Values) meaning(name string) string {
	c := v.Config()
	switch name {
	case "properties.io_batchsize":
		return fmt.Sprintf("a batch holds up to %d requests", c.BatchSize)
	case "execution.max_io_threads":
		if c.Workers == 0 {
			return "no effect: the ring needs a thread"
		}
		return fmt.Sprintf("the ring works on %d chunks at a time", c.Workers)
	case "properties.max_direct_io_size_kb":
		return fmt.Sprintf("the ring moves chunks of up to %d KiB", c.SlotSize>>10)
	case "properties.use_poll_mode", "properties.poll_mode_max_size_kb":
		if c.PollSize == 0 {
			return "no effect: use_poll_mode is off, and the ring polls where that is faster"
		}
		return fmt.Sprintf("the ring polls for the completions of requests of up to %d KiB, instead of sleeping or doing what is faster", c.PollSize>>10)
	case "properties.max_device_pinned_mem_size_kb":
		return fmt.Sprintf("BAR1 mappings of registered buffers use up to %d KiB of a GPU", c.BARLimit>>10)
	case "properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count":
		if c.PinnedBudget == 0 {
			return "no effect: the sizes and counts of slabs are not pairs, or too large"
		}
		return fmt.Sprintf("the ring pins up to %d KiB of host memory", c.PinnedBudget>>10)
	case "properties.allow_compat_mode":
		if c.StagedOnly {
			return "no effect: force_compat_mode wins"
		}
		return "transfers that need a staged route (ring, mapped, host) are refused"
	case "properties.force_compat_mode":
		return "only staged routes (ring, mapped, host) are used"
	case "properties.force_odirect_mode":
		return "files count as opened with O_DIRECT where their file system supports it"
	case "denylist.filesystems", "denylist.mounts", "denylist.devices", "denylist.drivers", "denylist.fsids":
		return "files that it names only use staged routes (ring, mapped, host)"
	case "logging.dir", "logging.file", "logging.level", "logging.max_file_size_mb":
		return v.logging(name)
	case "profile.cufile_stats":
		return "the statistics of libcufile have this level"
	}
	return "no effect"
}

// logging is the effect of a key of the log.
func (v Values) logging(name string) string {
	path := v.LogPath()
	file, _ := v.Text("logging.file")
	level, _ := v.Text("logging.level")
	switch {
	case path == "":
		return "no effect: without logging.dir or CUFILE_LOGFILE_PATH there is no log"
	case name == "logging.dir" && file != "":
		return "no effect: CUFILE_LOGFILE_PATH wins"
	case name == "logging.level":
		return "the log holds " + logged(level)
	case name == "logging.max_file_size_mb":
		if v.LogLimit() == 0 {
			return "the log grows without a limit"
		}
		return "the log is emptied when it is larger"
	}
	return "failed calls are logged to " + path
}

// logged is what a log of a level holds.
func logged(level string) string {
	switch strings.ToUpper(level) {
	case "TRACE", "DEBUG":
		return "failed calls, settings, and every transfer with its route"
	case "INFO", "NOTICE":
		return "failed calls and settings"
	case "WARN", "ERROR":
		return "failed calls"
	case "FATAL":
		return "nothing"
	}
	return "failed calls: the level is unknown and counts as ERROR"
}
