// Package logfile writes the log file of libcufile, which a program asks for with
// logging.dir of cufile.json, CUFILE_LOGFILE_PATH or a parameter.
package logfile

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Level is how much is logged: lines of this level and above it.
type Level int32

// The levels, with the names of cuFile. A zero Level is Error.
const (
	Trace Level = iota - 5
	Debug
	Info
	Notice
	Warn
	Error
	Fatal
)

var names = [...]string{"TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "ERROR", "FATAL"}

// String is the name of the level.
func (l Level) String() string { return names[l-Trace] }

// ParseLevel returns the level of a name in any case.
func ParseLevel(name string) (Level, bool) {
	for i, n := range names {
		if strings.EqualFold(n, name) {
			return Trace + Level(i), true
		}
	}
	return Error, false
}

// A Config says where a log is, and what it holds.
type Config struct {
	Path  string // empty for none
	Level Level
	Limit int64 // bytes after which the file is emptied; 0 for none
}

// A File is a log file. The zero File drops everything until it is configured. It is
// safe for concurrent use.
type File struct {
	// A line that is not written costs two loads.
	on atomic.Bool
	at atomic.Int32

	mu   sync.Mutex
	conf Config
	f    *os.File
	size int64
}

// Configure opens the file of a config, or closes the log if it has none.
func (l *File) Configure(c Config) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Path != l.conf.Path || l.f == nil {
		if err := l.reopen(c.Path); err != nil {
			l.conf = Config{}
			l.on.Store(false)
			return err
		}
	}
	l.conf = c
	l.at.Store(int32(c.Level))
	l.on.Store(l.f != nil)
	return nil
}

func (l *File) reopen(path string) error {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, st.Size()
	return nil
}

// Logs reports whether lines of a level are written.
func (l *File) Logs(level Level) bool { return l.on.Load() && level >= Level(l.at.Load()) }

// Write adds a line. A log that cannot be written does not fail the program.
func (l *File) Write(level Level, function, format string, args ...any) {
	if !l.Logs(level) {
		return
	}
	now := time.Now()
	line := fmt.Sprintf("%s:%03d [pid=%d] %-6s %s: %s\n", now.Format("02-01-2006 15:04:05"), now.Nanosecond()/1e6, os.Getpid(), level, function,
		strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n\t"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return
	}
	if l.conf.Limit > 0 && l.size+int64(len(line)) > l.conf.Limit && l.f.Truncate(0) == nil {
		l.size = 0
	}
	n, _ := l.f.WriteString(line)
	l.size += int64(n)
}
