package remote

// short executes a request that takes no time.
func (s *session) short(req *request) reply {
	r, err := s.handle(req)
	if err != nil {
		return answer(req.ID, err)
	}
	r.ID, r.Chunk = req.ID, uint32(s.srv.cfg.Chunk)
	return r
}

func (s *session) handle(req *request) (r reply, err error) {
	switch req.Op {
	case opOpen:
		return s.open(req.Name)
	case opCreate:
		return s.create(req.Name, req.Len)
	case opResume:
		u, err := s.srv.resumeUpload(req.Handle)
		if err != nil {
			return r, err
		}
		return s.adopt(&served{name: u.name, file: u.file.File, up: u, id: req.Handle})
	case opClose:
		f, err := s.find(req.Handle)
		if err != nil {
			return r, err
		}
		if r.Tag, r.Len, err = tagOf(f.file); err != nil {
			return r, err
		}
		s.mu.Lock()
		delete(s.files, req.Handle)
		s.mu.Unlock()
		s.tasks.Wait() // the file may be in use by a task of a client that does not wait
		s.forget(f, true)
		return r, nil
	}
	return r, refuse(Invalid, "the server does not know %v", req.Op)
}

func (s *session) open(name string) (r reply, err error) {
	f, err := s.srv.cfg.Exports.open(name)
	if err != nil {
		return r, err
	}
	return s.adopt(&served{name: name, file: f})
}

func (s *session) create(name string, size uint64) (r reply, err error) {
	if !s.srv.cfg.Writable {
		return r, refuse(Denied, "the server is read-only (fix: culvert rdma serve --writable)")
	}
	u, err := s.srv.cfg.Exports.create(name, size)
	if err != nil {
		return r, err
	}
	return s.adopt(&served{name: name, file: u.file.File, up: u, id: s.srv.startUpload(u)})
}

// adopt gives a file to the client. The handle of an upload is the same over all
// connections.
func (s *session) adopt(f *served) (r reply, err error) {
	if r.Tag, r.Len, err = tagOf(f.file); err != nil {
		s.forget(f, true)
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) >= maxFiles {
		s.forget(f, true)
		return r, refuse(Busy, "%d files are open", maxFiles)
	}
	if r.Handle = f.id; f.up == nil {
		s.next += 2 // even; handles of uploads are odd
		r.Handle = s.next
	} else if s.files[f.id] != nil {
		s.forget(f, true)
		return r, refuse(Invalid, "the upload is open already")
	}
	s.files[r.Handle] = f
	return r, nil
}

func (s *session) find(handle uint64) (*served, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[handle]
	if f == nil {
		return nil, refuse(NotFound, "no open file has handle %#x", handle)
	}
	return f, nil
}

// forget closes a file. An upload ends if its client closed it; if the connection was
// lost, it can be resumed.
func (s *session) forget(f *served, closed bool) {
	if f.up != nil {
		s.srv.releaseUpload(f.id, f.up, closed)
		return
	}
	f.file.Close()
}
