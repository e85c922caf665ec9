FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked
RUN mkdir /state

# glibc and libgcc and nothing else: no shell, no package manager, user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="Weir"
LABEL org.opencontainers.image.description="A rate-limiting reverse proxy that forwards, refuses or holds"
LABEL org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /src/target/dist/weir /weir
# For `snapshot.path`; a volume that is mounted here takes over whose it is.
COPY --from=build --chown=65532:65532 /state /var/lib/weir
USER 65532:65532
EXPOSE 8080 9901
HEALTHCHECK CMD ["/weir", "healthcheck"]
ENTRYPOINT ["/weir"]
CMD ["run", "--config", "/etc/weir/weir.toml"]
