"""Sets up everything Surecast needs: a virtual environment with pinned packages, and Java for Spark.

Run by `make demo` and `make test`; does nothing when nothing changed. It must run on any Python 3, old ones
included, to say clearly which Python is needed: so it uses no newer syntax and only the standard library.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "setup-stamp")
JAVA_HOME_FILE = os.path.join(VENV, "java-home")
OLDEST, NEWEST = (3, 11), (3, 14)
JAVA_OLDEST = 17
EXTRAS = ".[all,dev]"


def main():
    os.makedirs(os.path.join(ROOT, ".cache"), exist_ok=True)
    with open(os.path.join(ROOT, ".cache", "setup-lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two commands at once: the second waits and finds the work done
        set_up()


def set_up():
    python, version = find_python()
    stamp = make_stamp(version)
    if read(STAMP) == stamp and os.path.exists(os.path.join(VENV, "bin", "surecast")):
        return
    say("setting up with Python {} ({})".format(".".join(map(str, version)), python))
    make_venv(python, version)
    install_packages()
    compile_kernels()
    home = find_java() or install_java()
    write(JAVA_HOME_FILE, home or "")
    write(STAMP, stamp)
    say("done: {}".format(os.path.relpath(os.path.join(VENV, "bin", "surecast"), os.getcwd())))


def say(text):
    print("setup: " + text, flush=True)


def fail(text):
    sys.exit("setup: " + text)


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def make_stamp(version):
    digest = hashlib.sha256(repr(version).encode())
    digest.update(installed_sections(read(os.path.join(ROOT, "pyproject.toml"))).encode())
    for name in ("constraints.txt", os.path.join("tools", "setup.py")):
        digest.update(read(os.path.join(ROOT, name)).encode())
    return digest.hexdigest()


def installed_sections(text):
    """Returns the sections of pyproject.toml that say what is installed, without those of linters and tests: an option
    of pytest must not have all packages installed again."""
    sections = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    return "".join(part for part in sections if not re.match(r"\[+tool\.(?!setuptools)", part))


def find_python():
    """The interpreter named by PYTHON, or the first on the PATH that is recent enough."""
    named = os.environ.get("PYTHON")
    names = [named] if named else ["python3"] + ["python3.{}".format(n) for n in range(NEWEST[1], OLDEST[1] - 1, -1)]
    seen = []
    for name in names:
        path = shutil.which(name)
        version, base = inspect_python(path) if path else (None, None)
        if version and OLDEST <= version <= NEWEST:
            return base, version
        if version:
            seen.append("{} is {}.{}".format(name, *version))
    fail(
        "Surecast needs Python {}.{} to {}.{}; {}. Install one (Debian, Ubuntu: apt install python3 python3-venv; "
        "macOS: brew install python), or name it: make PYTHON=/path/to/python3.12 ...".format(
            OLDEST[0], OLDEST[1], NEWEST[0], NEWEST[1], ", ".join(seen) or "found none"
        )
    )


def inspect_python(path):
    """The version of an interpreter, and the interpreter that its virtual environment was made with, or itself."""
    # The interpreter of a virtual environment that is about to be replaced must not be the one that replaces it.
    code = "import sys; print(*sys.version_info[:2]); print(getattr(sys, '_base_executable', sys.executable))"
    try:
        output = subprocess.check_output([path, "-c", code], stderr=subprocess.DEVNULL).decode()
        version, base = output.strip().split("\n")
        major, minor = version.split()
        return (int(major), int(minor)), base
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None, None


def make_venv(python, version):
    shutil.rmtree(VENV, ignore_errors=True)
    if subprocess.call([python, "-m", "venv", VENV], stdout=subprocess.DEVNULL) == 0:
        return
    package = "python{}.{}-venv".format(*version)
    if apt_install(package) and subprocess.call([python, "-m", "venv", VENV]) == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    fail("this Python cannot make virtual environments; on Debian or Ubuntu run: apt install " + package)


def install_packages():
    say("installing the pinned packages (a minute or two the first time)")
    pip = [os.path.join(VENV, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = os.path.join(ROOT, "constraints.txt")
    # The constraint on setuptools must reach pip's own build environment too, hence the variable.
    environment = dict(os.environ, PIP_CONSTRAINT=constraints)
    if subprocess.call([*pip, "-c", constraints, "-e", EXTRAS], cwd=ROOT, env=environment) != 0:
        fail("pip could not install the packages; its message is above")


def compile_kernels():
    say("compiling the kernels of models and simulations (a minute or two, once)")
    python = os.path.join(VENV, "bin", "python")
    if subprocess.call([python, os.path.join(ROOT, "tools", "compile_kernels.py"), "--all"], cwd=ROOT) != 0:
        say("the kernels could not be compiled ahead; the first prediction compiles those it needs")


def find_java():
    """The home of a Java that is recent enough, or None."""
    homes = [os.environ.get("JAVA_HOME", "")]
    on_path = shutil.which("java")
    if on_path:
        homes.append(os.path.dirname(os.path.dirname(os.path.realpath(on_path))))
    for folder in ("/usr/lib/jvm", "/opt/homebrew/opt", "/usr/local/opt", "/Library/Java/JavaVirtualMachines"):
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder), reverse=True):
                home = os.path.join(folder, name)
                homes += [home, os.path.join(home, "Contents", "Home")]
    for home in homes:
        if home and java_version(os.path.join(home, "bin", "java")) >= JAVA_OLDEST:
            say("Java {} for Spark: {}".format(java_version(os.path.join(home, "bin", "java")), home))
            return home
    return None


def java_version(java):
    """The major version of a Java, 0 where it is none."""
    if not os.access(java, os.X_OK):
        return 0
    try:
        output = subprocess.check_output([java, "-version"], stderr=subprocess.STDOUT).decode(errors="replace")
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if not found:
        return 0
    return int(found.group(2) or 0) if found.group(1) == "1" else int(found.group(1))


def install_java():
    say("Spark needs Java {} or later, and there is none: installing it".format(JAVA_OLDEST))
    if shutil.which("brew"):
        if subprocess.call(["brew", "install", "openjdk@{}".format(JAVA_OLDEST)]) == 0:
            return find_java()
    for package in ("openjdk-{}-jre-headless".format(JAVA_OLDEST), "default-jre-headless"):
        if apt_install(package):
            home = find_java()
            if home:
                return home
    say(
        "could not install Java; everything but the Spark pipeline works without it. To have it, run: "
        "apt install default-jre-headless (Debian, Ubuntu), dnf install java-latest-openjdk-headless (Fedora) or "
        "brew install openjdk (macOS), or set JAVA_HOME; then: rm -rf .venv, and the same command again"
    )
    return None


def apt_install(package):
    """Installs a Debian package where that is possible without asking anybody."""
    if not shutil.which("apt-get"):
        return False
    prefix = []
    if os.geteuid() != 0:
        if not shutil.which("sudo") or subprocess.call(["sudo", "-n", "true"], stderr=subprocess.DEVNULL) != 0:
            return False
        prefix = ["sudo", "-n"]
    quiet = {"stdout": subprocess.DEVNULL, "env": dict(os.environ, DEBIAN_FRONTEND="noninteractive")}
    subprocess.call([*prefix, "apt-get", "update", "-qq"], **quiet)
    return (
        subprocess.call([*prefix, "apt-get", "install", "-y", "-qq", "--no-install-recommends", package], **quiet) == 0
    )


if __name__ == "__main__":
    main()
