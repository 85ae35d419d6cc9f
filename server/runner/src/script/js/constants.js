// node:constants: numbers of signals, errors and file modes.
"use strict";

const linux = host.platform !== "darwin";
const signals = {
  SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGILL: 4, SIGTRAP: 5, SIGABRT: 6, SIGFPE: 8, SIGKILL: 9, SIGSEGV: 11, SIGPIPE: 13, SIGALRM: 14, SIGTERM: 15,
  ...(linux
    ? { SIGBUS: 7, SIGUSR1: 10, SIGUSR2: 12, SIGCHLD: 17, SIGCONT: 18, SIGSTOP: 19, SIGTSTP: 20 }
    : { SIGBUS: 10, SIGUSR1: 30, SIGUSR2: 31, SIGCHLD: 20, SIGCONT: 19, SIGSTOP: 17, SIGTSTP: 18 }),
};
const fs = {
  F_OK: 0, X_OK: 1, W_OK: 2, R_OK: 4, COPYFILE_EXCL: 1,
  S_IFMT: 0o170000, S_IFREG: 0o100000, S_IFDIR: 0o040000, S_IFLNK: 0o120000, S_IRUSR: 0o400, S_IWUSR: 0o200, S_IXUSR: 0o100,
  O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2,
};
const errno = { ENOENT: 2, EACCES: 13, EEXIST: 17, ENOTDIR: 20, EISDIR: 21, EINVAL: 22 };
module.exports = { ...signals, ...fs, ...errno };
Object.defineProperty(module.exports, "signals", { value: signals });
Object.defineProperty(module.exports, "fs", { value: fs });
