# The labs in a container, with everybody's pins; the image holds the installed package, and no solutions.
#   docker build -t hpcdl .
#   docker run --rm -p 8888:8888 --shm-size=1g -v hpcdl-labs:/home/student/labs hpcdl
FROM python:3.11-slim AS build
COPY . /course
WORKDIR /course
RUN python -m venv /opt/hpcdl && /opt/hpcdl/bin/pip install --no-cache-dir -r binder/requirements.txt

FROM python:3.11-slim
COPY --from=build /opt/hpcdl /opt/hpcdl
ENV PATH=/opt/hpcdl/bin:$PATH
RUN useradd --create-home student
USER student
WORKDIR /home/student
# A volume takes its owner from what it covers; the labs that it lacks are copied into it, and what is there is kept.
RUN mkdir labs
EXPOSE 8888
CMD ["hpcdl", "lab", "--no-browser", "--ip=0.0.0.0", "--folder=labs"]
