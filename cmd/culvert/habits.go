package main

// habits has, for flags that people know from cp, rsync and rclone and that a command
// does not have, what to type instead.
var habits = map[string]map[string]string{
	"cp": {
		"a":        useArchive,
		"archive":  useArchive,
		"bwlimit":  "use --limit-rate, such as 100M (10^6 bytes a second)",
		"f":        "not needed, DEST is replaced",
		"force":    "not needed, DEST is replaced",
		"delete":   "not supported: files that only DEST has are kept",
		"P":        useProgress,
		"p":        "use --preserve for owner, mode and times",
		"progress": useProgress,
	},
}

const (
	useArchive  = "directories are copied as a whole; use --preserve for owner, mode and times"
	useProgress = "not needed, a terminal shows progress"
)

// useDirectory are the flags by which cp, rsync and scp copy directories, by their
// letters. They change nothing.
var useDirectory = map[string]string{"r": "recursive", "R": "Recursive"}
