# gputui with TensorFlow and its CUDA libraries; the driver is the host's. docs/operations.md says how to use it.
FROM python:3.12-slim

# With PYTHONDONTWRITEBYTECODE unset, pip compiles what it installs: TensorFlow starts seconds sooner.
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    GPUTUI_HOME=/runs \
    XDG_CONFIG_HOME=/runs/config \
    HOME=/runs \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Another build takes another extra: --build-arg EXTRAS=tensorflow for a machine without a GPU.
ARG EXTRAS=cuda
WORKDIR /opt/gputui
COPY . .
RUN pip install ".[${EXTRAS}]" && rm -rf /opt/gputui/* && mkdir -m 777 /runs

# Not as root, so that what is written to /work does not belong to root; `docker run --user` names another user, who
# needs no entry in /etc/passwd.
USER 1000:1000
VOLUME /runs
WORKDIR /work
ENTRYPOINT ["gputui"]
