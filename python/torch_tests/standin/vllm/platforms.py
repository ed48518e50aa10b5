class Platform:
    cuda = True

    def is_cuda(self):
        return self.cuda


current_platform = Platform()
